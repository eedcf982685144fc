#include "reelgrad/base/mapped_file.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <functional>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/base/testing/temporary_folder.h"

namespace reelgrad {
namespace {

using ::testing::HasSubstr;

std::string map_error(const std::filesystem::path& path) {
  try {
    const MappedFile file(path);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::failed);
    return error.what();
  }
  return {};
}

TEST(MappedFile, HoldsTheBytesAndWritesNone) {
  const test::TemporaryFolder folder;
  const auto path = folder.write("é", "abc");
  {
    const MappedFile file(path);
    ASSERT_EQ(file.bytes().size(), 3U);
    EXPECT_EQ(file.bytes()[2], std::byte{'c'});
    file.bytes()[0] = std::byte{'x'};
  }
  EXPECT_EQ(read_file(path), "abc");
}

TEST(MappedFile, OutlivesTheFilesName) {
  const test::TemporaryFolder folder;
  const auto path = folder.write("a", "abc");
  const MappedFile file(path);
  write_file_atomically(path, "other");
  EXPECT_EQ(file.bytes()[1], std::byte{'b'});
}

TEST(MappedFile, TakesAnEmptyFile) {
  const test::TemporaryFolder folder;
  EXPECT_TRUE(MappedFile(folder.write("a", "")).bytes().empty());
}

TEST(MappedFile, SaysWhatIsNoFile) {
  const test::TemporaryFolder folder;
  EXPECT_THAT(map_error(folder / "none"), HasSubstr("none: no such file"));
  EXPECT_THAT(map_error(folder.path()), HasSubstr("is not a file"));
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(map_error(folder / "pipe"), HasSubstr("pipe: is not a file"));
}

}  // namespace
}  // namespace reelgrad
