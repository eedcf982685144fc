#include "reelgrad/doctor/torch_install.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "reelgrad/base/testing/temporary_folder.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class TorchInstalls : public ::testing::Test {
 protected:
  ~TorchInstalls() override { ::unsetenv("REELGRAD_TORCH"); }

  void add_library() const { write("lib/libtorch.so", ""); }
  void write(const char* name, const char* text) const { temporary_.write(name, text); }

  test::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(TorchInstalls, ReadsAWheelsVersionFile) {
  add_library();
  write("version.py",
        "from typing import Optional\n__all__ = ['__version__', 'cuda']\n__version__ = '2.11.0+cu130'\n"
        "debug = False\ncuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n");
  const auto torch = read_torch(folder_);
  ASSERT_TRUE(torch);
  EXPECT_EQ(torch->version, "2.11.0+cu130");
  EXPECT_EQ(torch->cuda, "13.0");
  EXPECT_EQ(torch->dir, folder_);
  EXPECT_EQ(torch_version(folder_), "2.11.0+cu130");
}

TEST_F(TorchInstalls, ACpuBuildHasNoCuda) {
  add_library();
  write("version.py", "__version__ = \"2.11.0+cpu\"\ncuda: Optional[str] = None\nhip: Optional[str] = '6'\n");
  EXPECT_EQ(read_torch(folder_)->version, "2.11.0+cpu");
  EXPECT_EQ(read_torch(folder_)->cuda, "");
}

TEST_F(TorchInstalls, ReadsAnArchivesBuildVersion) {
  add_library();
  write("build-version", "2.10.0+cu128\n");
  EXPECT_EQ(read_torch(folder_)->version, "2.10.0+cu128");
  EXPECT_EQ(read_torch(folder_)->cuda, "12.8");
}

TEST_F(TorchInstalls, WithoutALibraryItIsNone) {
  write("version.py", "__version__ = '2.11.0'\n");
  EXPECT_FALSE(read_torch(folder_));
  EXPECT_EQ(torch_version(folder_ / "none"), std::nullopt);
}

TEST_F(TorchInstalls, TheVariableWinsAndIsNeverReplaced) {
  add_library();
  write("version.py", "__version__ = '1.0'\n");
  ::setenv("REELGRAD_TORCH", folder_.c_str(), 1);
  EXPECT_EQ(find_torch()->version, "1.0");
  ::setenv("REELGRAD_TORCH", "/nonexistent", 1);
  std::string why;
  EXPECT_FALSE(find_torch(&why));
  EXPECT_EQ(why, "REELGRAD_TORCH=/nonexistent has no lib/libtorch.so");
}

TEST_F(TorchInstalls, OtherwiseTheOneOfTheBuildIsFoundWhereItStillIs) {
  ::unsetenv("REELGRAD_TORCH");
  std::string why;
  const auto torch = find_torch(&why);
  if (!torch) {
    EXPECT_THAT(why, HasSubstr("no lib/libtorch.so in "));
  } else {
    EXPECT_TRUE(fs::exists(torch->dir / "lib/libtorch.so"));
    EXPECT_NE(torch->version, "");
    EXPECT_EQ(why, "");
  }
}

}  // namespace
}  // namespace reelgrad
