// The plugin in a real VapourSynth, over an engine without torch (testing/fake_engine.cpp) whose networks are simple
// enough to know their pictures beforehand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "reelgrad/base/files.h"
#include "reelgrad/base/process.h"
#include "reelgrad/base/testing/temporary_folder.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const std::string kCases = std::string(REELGRAD_SOURCE_DIR) + "/reelgrad/plugin/testdata/filter_cases.py";

// A case of filter_cases.py, or a script in vspipe, within the time that people wait.
class FilterTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_.emplace();
    folder_->write("torch/version.py", read_file(fs::path(REELGRAD_TEST_TORCH_DIR) / "version.py"));
    fs::create_directories(*folder_ / "torch/lib");
    for (const char* library : {"libtorch.so", "libtorch_cuda.so"}) {
      fs::copy_file(fs::path(REELGRAD_TEST_DECOYS) / "libtorch_cpu.so", *folder_ / "torch/lib" / library);
    }
    fs::copy_file(REELGRAD_TEST_PLUGIN, plugin());
    fs::copy_file(REELGRAD_TEST_FAKE_ENGINE, *folder_ / "libreelgrad.so");
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static fs::path plugin() { return *folder_ / "libreelgrad_vs.so"; }

  static ProcessResult run(const std::vector<std::string>& argv) {
    return run_process(argv, std::chrono::seconds(20), {"REELGRAD_TORCH=" + (*folder_ / "torch").string()});
  }

  static ProcessResult python(const std::string& name, const std::vector<std::string>& arguments = {}) {
    std::vector<std::string> argv{REELGRAD_TEST_PYTHON, kCases, name, plugin().string()};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    return run(argv);
  }

  static void expect_ok(const std::string& name) {
    const ProcessResult result = python(name);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr(name + " ok")) << result.err;
  }

  static ProcessResult vspipe(const std::string& spec, const std::vector<std::string>& options) {
    const fs::path script = folder_->write(
        "script.vpy", "import vapoursynth as vs\ncore = vs.core\ncore.std.LoadPlugin(r'" + plugin().string() +
                          "')\nclip = core.std.BlankClip(format=vs.YUV420P8, width=64, height=48, length=50)\n"
                          "core.reelgrad.Model(clip, '" +
                          spec + "').set_output()\n");
    std::vector<std::string> argv{REELGRAD_TEST_VSPIPE};
    argv.insert(argv.end(), options.begin(), options.end());
    argv.insert(argv.end(), {script.string(), "."});
    return run(argv);
  }

  inline static std::optional<test::TemporaryFolder> folder_;
};

TEST_F(FilterTest, ClipEndsAreRepeatedOrMirrored) {
  expect_ok("windows");
}

TEST_F(FilterTest, NothingIsSeenAcrossACut) {
  expect_ok("cuts");
}

TEST_F(FilterTest, SegmentsAreTheSameInAnyOrderAndMadeOnce) {
  expect_ok("segments");
}

TEST_F(FilterTest, AsManyFramesAtOnceAsStreams) {
  expect_ok("side_by_side");
}

TEST_F(FilterTest, PropertiesSayWhatTheFramesHold) {
  expect_ok("props");
}

TEST_F(FilterTest, AlphaKeepsUp) {
  expect_ok("alpha");
}

TEST_F(FilterTest, NoiseLevelsAsNumberAndClip) {
  expect_ok("sigmas");
}

TEST_F(FilterTest, ErrorsAtCreationSayWhatIsAllowed) {
  expect_ok("errors");
}

TEST_F(FilterTest, Metrics) {
  expect_ok("metrics");
}

TEST_F(FilterTest, InspectIsADictOfStrings) {
  expect_ok("inspect");
}

TEST_F(FilterTest, DevicesAreListedWithoutTorch) {
  expect_ok("devices");
}

TEST_F(FilterTest, AFrameThatFailsFailsAlone) {
  expect_ok("failures");
}

TEST_F(FilterTest, LittleMemoryIsEnough) {
  expect_ok("little_memory");
}

TEST_F(FilterTest, ClipsAreDroppedWithFramesInFlight) {
  expect_ok("drop");
}

TEST_F(FilterTest, AProgramEndsWithFramesInFlight) {
  for (const char* done : {"0", "3"}) {
    const ProcessResult result = python("leave", {done});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("leave ok"));
  }
}

TEST_F(FilterTest, VspipeStopsEarlyAndFailsInOrder) {
  for (int i = 0; i < 10; ++i) {
    const ProcessResult stopped = vspipe("window=3,streams=2,sleep_ms=5", {"-e", "2"});
    EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
    const ProcessResult failed = vspipe("window=3,streams=2,sleep_ms=5,fails=7", {});
    EXPECT_EQ(failed.exit_code, 1) << failed.err;
    EXPECT_THAT(failed.err, HasSubstr("Model: frame 7: the tape is torn"));
  }
}

}  // namespace
}  // namespace reelgrad
