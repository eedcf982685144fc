// How the engine is found and opened, and what its binary promises.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "reelgrad/base/testing/program_output.h"
#include "reelgrad/base/testing/temporary_folder.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;
using test::lines_of;
using test::output_of;
using testing::AllOf;
using testing::AnyOf;
using testing::Contains;
using testing::ContainsRegex;
using testing::Each;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

const std::string kTorchDir = REELGRAD_TEST_TORCH_DIR;
const std::string kTorchVersion = REELGRAD_TEST_TORCH_VERSION;
const std::string kEngine = REELGRAD_TEST_ENGINE;
const std::string kProbe = REELGRAD_TEST_PROBE;
const fs::path kDecoys = REELGRAD_TEST_DECOYS;

std::string probe(const std::vector<std::string>& arguments, const std::vector<std::string>& environment = {}) {
  std::vector<std::string> argv{kProbe};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return output_of(argv, environment);
}

std::vector<std::string> mapped(const std::string& output, const std::string& name) {
  std::vector<std::string> paths;
  for (const std::string& line : lines_of(output)) {
    if (line.starts_with("mapped ") && line.find(name) != std::string::npos) paths.push_back(line.substr(7));
  }
  return paths;
}

// A folder that looks like a torch: version.py, and the named libraries, all of them empty.
class FakeTorch {
 public:
  FakeTorch(const std::string& version, const std::vector<std::string>& libraries) {
    folder_.write("version.py", "__version__ = '" + version + "'\ncuda: Optional[str] = '13.0'\n");
    fs::create_directories(folder_ / "lib");
    for (const std::string& library : libraries) fs::copy_file(kDecoys / "libtorch_cpu.so", folder_ / "lib" / library);
  }
  std::string path() const { return folder_.path().string(); }

 private:
  test::TemporaryFolder folder_;
};

TEST(OpenEngine, OpensOnceAndItsErrorsAreValues) {
  const std::string out = probe({});
  EXPECT_THAT(out, HasSubstr("engine opened\n"));
  EXPECT_THAT(out, HasSubstr("inspect ok=0 kind=1 /nonexistent.safetensors"));
  EXPECT_EQ(mapped(out, "libtorch_cuda.so").size(), 1U) << "a CUDA libtorch must not be dropped by the linker";
}

TEST(OpenEngine, AProcessThatNeverAsksMapsNoTorch) {
  EXPECT_TRUE(mapped(probe({"--no-engine"}), "torch").empty());
}

TEST(OpenEngine, DecoysOnTheLibraryPathDoNotWin) {
  const std::string path = "LD_LIBRARY_PATH=" + kDecoys.string();
  // The decoys work: opened by name alone, they are what the path gives.
  const std::string control = probe({"--no-engine", "--map", "libcudnn.so.9", "--map", "libcudart.so.13"}, {path});
  EXPECT_EQ(mapped(control, kDecoys.string()).size(), 2U) << control;

  const std::string out = probe({}, {path});
  EXPECT_THAT(out, HasSubstr("engine opened\n"));
  EXPECT_TRUE(mapped(out, kDecoys.string()).empty()) << out;
  EXPECT_EQ(mapped(out, "libcudart.so.13").size(), 1U);
  EXPECT_EQ(mapped(out, "libcudnn.so.9").size(), 1U);
}

TEST(OpenEngine, AnotherTorchInTheProcessIsRefused) {
  const FakeTorch other("2.9.1+cu126", {"libtorch_cpu.so", "libtorch.so"});
  const std::string out = probe({"--map", other.path() + "/lib/libtorch_cpu.so"});
  EXPECT_THAT(out, AllOf(HasSubstr("refused kind=3"), HasSubstr(other.path()), HasSubstr("2.9.1+cu126"),
                         HasSubstr(kTorchDir), HasSubstr(kTorchVersion)));
  EXPECT_TRUE(mapped(out, "libreelgrad.so").empty());
}

TEST(OpenEngine, ATorchOfAnotherVersionIsRefused) {
  const FakeTorch other("2.4.0", {"libtorch.so", "libtorch_cuda.so"});
  EXPECT_THAT(probe({}, {"REELGRAD_TORCH=" + other.path()}),
              AllOf(HasSubstr("refused kind=3"), HasSubstr(other.path()), HasSubstr("2.4.0"), HasSubstr(kTorchVersion),
                    HasSubstr("REELGRAD_TORCH")));
}

TEST(OpenEngine, ACpuOnlyTorchIsRefused) {
  const FakeTorch cpu_only(kTorchVersion, {"libtorch.so", "libtorch_cpu.so"});
  EXPECT_THAT(probe({}, {"REELGRAD_TORCH=" + cpu_only.path()}),
              AllOf(HasSubstr("refused kind=3"), HasSubstr("CPU-only"), HasSubstr("pip install torch==")));
}

TEST(OpenEngine, NoTorchAtAll) {
  EXPECT_THAT(probe({}, {"REELGRAD_TORCH=/nonexistent"}),
              AllOf(HasSubstr("refused kind=3"), HasSubstr("/nonexistent"), Not(HasSubstr("libtorch_cpu.so"))));
}

TEST(EngineBinary, ExportsOneFunctionAndThePublicClasses) {
  const std::vector<std::string> symbols = lines_of(output_of({"nm", "-DC", "--defined-only", kEngine}));
  EXPECT_THAT(symbols,
              Each(AnyOf(EndsWith(" T reelgrad_engine"), ContainsRegex(" T reelgrad::FrameLoader::[^:]*[[(]"))));
  for (const char* symbol : {"reelgrad_engine", "::FrameLoader(reelgrad::FrameLoaderOptions const&)", "::next()",
                             "::describe[abi:cxx11]() const", "::~FrameLoader()"}) {
    EXPECT_THAT(symbols, Contains(EndsWith(symbol)));
  }
}

TEST(EngineBinary, DynamicSection) {
  const std::string section = output_of({"readelf", "-dW", kEngine});
  EXPECT_THAT(section, AllOf(HasSubstr("[libtorch_cuda.so]"), HasSubstr("[libtorch_cpu.so]"), HasSubstr("NODELETE"),
                             HasSubstr("(RPATH)"), Not(HasSubstr("(RUNPATH)"))));
}

}  // namespace
}  // namespace reelgrad
