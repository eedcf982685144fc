#include "reelgrad/base/model_file.h"

#include <gtest/gtest.h>

#include <string>

#include "reelgrad/base/testing/temporary_folder.h"

namespace reelgrad {
namespace {

TEST(ModelFileKind, IsToldByTheFirstBytes) {
  const test::TemporaryFolder folder;
  const auto kind_of = [&](const std::string& bytes) { return model_file_kind(folder.write("a.mkv", bytes)); };
  EXPECT_EQ(kind_of(std::string("PK\x03\x04", 4)), ModelFileKind::zip);
  EXPECT_EQ(kind_of("\x80\x02\x8a\x0a"), ModelFileKind::pickle);
  EXPECT_EQ(kind_of(std::string("\x02\0\0\0\0\0\0\0{}", 10)), ModelFileKind::safetensors);
  std::string tar(512, '\0');
  tar.replace(257, 5, "ustar");
  EXPECT_EQ(kind_of(tar), ModelFileKind::tar);
}

TEST(ModelFileKind, LeavesOtherFilesAlone) {
  const test::TemporaryFolder folder;
  EXPECT_EQ(model_file_kind(folder.path()), ModelFileKind::other);
  EXPECT_EQ(model_file_kind(folder / "none"), ModelFileKind::other);
  for (const char* text : {"", "PK", "\x80", "import vapoursynth as vs\n", "{}", "\x1a\x45\xdf\xa3 matroska"}) {
    EXPECT_EQ(model_file_kind(folder.write("a", text)), ModelFileKind::other) << text;
  }
  EXPECT_EQ(model_file_kind(folder.write("a", std::string("\0\0\0\x20"
                                                          "ftypisom{}",
                                                          14))),
            ModelFileKind::other);
}

}  // namespace
}  // namespace reelgrad
