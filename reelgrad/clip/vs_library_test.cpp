#include "reelgrad/clip/vs_library.h"

#include <gmock/gmock.h>

#include "reelgrad/base/files.h"
#include "reelgrad/clip/clip_test_util.h"

namespace reelgrad {
namespace {

using test::TemporaryFolder;
using namespace std::chrono_literals;

// This test again in a child with nothing but this environment.
ProcessResult opens_in(std::vector<std::string> environment) {
  std::vector<std::string> argv{"env", "-i"};
  argv.insert(argv.end(), environment.begin(), environment.end());
  argv.insert(argv.end(), {executable_path().string(), "--gtest_filter=VsLibrary.Opens"});
  return run_process(argv, 60s);
}

TEST(VsLibrary, Opens) {
  const VapourSynthVersions versions = vapoursynth_versions();
  ASSERT_EQ(versions.error, "");
  EXPECT_GE(std::stoi(versions.core.substr(1)), 81);
  EXPECT_EQ(versions.core.front(), 'R');
  EXPECT_TRUE(versions.vsscript.ends_with("libvsscript.so"));
  EXPECT_NE(versions.python, "");
  EXPECT_EQ(versions.source_plugins.front(), "bs");
  EXPECT_THAT(versions.plugins, testing::IsSupersetOf({"std", "resize", "bs"}));
}

TEST(VsLibrary, OpensWithoutAnyEnvironment) {
  const ProcessResult child = opens_in({});
  EXPECT_EQ(child.exit_code, 0) << child.out << child.err;
}

TEST(VsLibrary, ConfiguresItselfWhereNobodyHas) {
  const TemporaryFolder home;
  const ProcessResult child = opens_in({"HOME=" + home.path().string()});
  EXPECT_EQ(child.exit_code, 0) << child.out << child.err;
  const std::string config = test::read_bytes(home / ".config/vapoursynth/vapoursynth.toml");
  EXPECT_NE(config.find("libvsscript.so"), std::string::npos) << config;
}

TEST(VsLibrary, RenewsAStaleConfiguration) {
  const TemporaryFolder folder;
  test::fs::create_directories(folder / "vapoursynth");
  const std::string library = vapoursynth_versions().vsscript;
  folder.write("vapoursynth/vapoursynth.toml",
               "\"" + library + "\" = [\"/nowhere/python\",\"/nowhere/libpython3.12.so\",\"1\"]\n");
  const ProcessResult child =
      opens_in({"XDG_CONFIG_HOME=" + folder.path().string(), "XDG_CACHE_HOME=" + (folder / "cache").string()});
  EXPECT_EQ(child.exit_code, 0) << child.out << child.err;
}

TEST(VsLibrary, OpensAnEnvironmentThatIsReachedThroughALink) {
  const TemporaryFolder folder;
  const test::fs::path library = vapoursynth_versions().vsscript;
  test::fs::create_directory_symlink(library.parent_path(), folder / "linked");
  const std::vector<std::string> config{"XDG_CONFIG_HOME=" + folder.path().string(),
                                        "XDG_CACHE_HOME=" + (folder / "cache").string()};
  for (const test::fs::path& name : {library, folder / "linked/libvsscript.so"}) {  // the first enters its own name
    std::vector<std::string> environment = config;
    environment.push_back("VSSCRIPT_PATH=" + name.string());
    const ProcessResult child = opens_in(environment);
    EXPECT_EQ(child.exit_code, 0) << name << child.out << child.err;
  }
}

TEST(VsLibrary, ANamedLibraryIsNotReplacedByAnother) {
  const ProcessResult child = opens_in({"VSSCRIPT_PATH=/nowhere/libvsscript.so"});
  EXPECT_NE(child.exit_code, 0);
  EXPECT_NE(child.out.find("/nowhere/libvsscript.so (VSSCRIPT_PATH: no such file)"), std::string::npos) << child.out;
  EXPECT_NE(child.out.find("pip install vapoursynth"), std::string::npos) << child.out;
}

}  // namespace
}  // namespace reelgrad
