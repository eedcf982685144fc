// The plugin in a real VapourSynth: in Python, and loaded and unloaded by a C++ program.
#include <VapourSynth4.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "reelgrad/base/files.h"
#include "reelgrad/base/testing/program_output.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/clip/clip.h"
#include "reelgrad/clip/frame_stream.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;
using test::lines_of;
using test::output_of;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::string kPlugin = REELGRAD_TEST_PLUGIN;
const std::string kCases = std::string(REELGRAD_SOURCE_DIR) + "/reelgrad/plugin/testdata/model_cases.py";

class PluginTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_.emplace();
    python("model");
  }
  static void TearDownTestSuite() { folder_.reset(); }

  // The output of a case of model_cases.py, which must succeed.
  static std::string python(const std::string& name, const std::vector<std::string>& arguments = {},
                            const std::vector<std::string>& environment = {}) {
    // A machine that has only the binaries (scripts/gpu_test.sh) has a Python of its own.
    const char* program = fs::exists(REELGRAD_TEST_PYTHON) ? REELGRAD_TEST_PYTHON : "python3";
    std::vector<std::string> argv{program, kCases, name, kPlugin, folder_->path().string()};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    return output_of(argv, environment);
  }

  static fs::path model() { return *folder_ / "model.safetensors"; }

  inline static std::optional<test::TemporaryFolder> folder_;
};

TEST_F(PluginTest, VersionNeverFailsAndOpensNothing) {
  EXPECT_THAT(python("version"), AllOf(HasSubstr("version=0."), HasSubstr("torch=2."), HasSubstr("problem=\n"),
                                       HasSubstr("mapped: False")));
  EXPECT_THAT(python("version", {}, {"REELGRAD_TORCH=/nonexistent"}),
              AllOf(HasSubstr("version=0."), HasSubstr("torch=\n"), HasSubstr("problem=REELGRAD_TORCH=/nonexistent")));
}

TEST_F(PluginTest, SamePixelsWithTorchImportedBeforeAfterAndNever) {
  const std::vector<std::string> never = lines_of(python("torch_never"));
  const std::vector<std::string> before = lines_of(python("torch_before"));
  const std::vector<std::string> after = lines_of(python("torch_after"));
  ASSERT_EQ(never.size(), 1U);
  ASSERT_EQ(never[0].size(), 64U);
  EXPECT_EQ(before, (std::vector<std::string>{never[0], "27.0"}));
  EXPECT_EQ(after, (std::vector<std::string>{never[0], "27.0"}));
}

TEST_F(PluginTest, EveryFormatKeepsFormatAndProperties) {
  EXPECT_EQ(python("formats"), "formats ok\n");
}

TEST_F(PluginTest, FramesAreTheSameInAnyOrder) {
  EXPECT_EQ(python("orders"), "orders ok\n");
}

TEST_F(PluginTest, ErrorsAtCreation) {
  const std::vector<std::string> errors = lines_of(python("errors"));
  const char* expected[] = {"format or size varies",
                            "32-bit",
                            "missing.safetensors",
                            "abacus",
                            "fp16",
                            "fp8",
                            "tile",
                            "overlap",
                            "matrix_in"};
  ASSERT_EQ(errors.size(), std::size(expected)) << python("errors");
  for (std::size_t i = 0; i < errors.size(); ++i) {
    EXPECT_THAT(errors[i], AllOf(StartsWith(std::to_string(i) + " Model: "), HasSubstr(expected[i])));
  }
}

TEST_F(PluginTest, AFrameThatFailsFailsAlone) {
  const std::vector<std::string> lines = lines_of(python("frame_error"));
  ASSERT_GE(lines.size(), 3U);
  EXPECT_EQ(lines.front(), "True");
  EXPECT_THAT(python("frame_error"), HasSubstr("the tape is torn"));
  EXPECT_THAT(lines.back(), AllOf(StartsWith("Model: frame 3: "), HasSubstr("_Matrix")));
}

TEST_F(PluginTest, NoTorchAndAnotherTorchAreErrorsInWords) {
  const std::string missing = lines_of(python("errors", {}, {"REELGRAD_TORCH=/nonexistent"}))[3];
  EXPECT_THAT(missing, AllOf(HasSubstr("Model: "), HasSubstr("REELGRAD_TORCH=/nonexistent")));

  const fs::path other = folder_->write("other/torch/version.py", "__version__ = '2.9.1+cu126'\n").parent_path();
  fs::create_directories(other / "lib");
  fs::copy_file(fs::path(REELGRAD_TEST_DECOYS) / "libtorch_cpu.so", other / "lib/libtorch_cpu.so");
  EXPECT_THAT(python("refusal", {(other / "lib/libtorch_cpu.so").string()}),
              AllOf(StartsWith("Model: "), HasSubstr(other.string()), HasSubstr("2.9.1+cu126"),
                    HasSubstr(REELGRAD_TEST_TORCH_DIR)));
}

TEST_F(PluginTest, SamePixelsAsApply) {
  python("script");
  const fs::path video = *folder_ / "applied.y4m";
  output_of({REELGRAD_TEST_PROGRAM, "apply", model().string(), (*folder_ / "source.vpy").string(), "-o", video.string(),
             "--device", "cpu"});
  // Y4M is a header line, then for each frame a line "FRAME" and its planes.
  std::string y4m = read_file(video), frames;
  std::size_t at = y4m.find('\n') + 1;
  constexpr std::size_t kFrameBytes = 80 * 48 * 3 / 2;
  while (at < y4m.size()) {
    at = y4m.find('\n', at) + 1;
    frames += y4m.substr(at, kFrameBytes);
    at += kFrameBytes;
  }
  EXPECT_EQ(frames.size(), 4 * kFrameBytes);
  EXPECT_TRUE(frames == read_file(*folder_ / "plugin.raw"));
}

// --- In a C++ program ---

std::size_t entries(const char* folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

std::int64_t resident_kb() {
  const std::string status = read_file("/proc/self/status");
  return std::stoll(status.substr(status.find("VmRSS:") + 6));
}

// Loads the plugin into a new core, restores a frame, and frees it all. True when the frame came.
bool use_plugin_once(const VSAPI* api, const std::string& model) {
  VSCore* core = api->createCore(ccfDisableAutoLoading);
  VSPlugin* standard = api->getPluginByID("com.vapoursynth.std", core);
  VSMap* arguments = api->createMap();
  const auto invoke = [&](VSPlugin* plugin, const char* name) {
    VSMap* result = api->invoke(plugin, name, arguments);
    if (const char* message = api->mapGetError(result)) ADD_FAILURE() << name << ": " << message;
    api->clearMap(arguments);
    return result;
  };
  api->mapSetData(arguments, "path", kPlugin.c_str(), -1, dtUtf8, maReplace);
  api->freeMap(invoke(standard, "LoadPlugin"));
  api->mapSetInt(arguments, "width", 32, maReplace);
  api->mapSetInt(arguments, "height", 16, maReplace);
  VSMap* blank = invoke(standard, "BlankClip");
  api->mapConsumeNode(arguments, "clip", api->mapGetNode(blank, "clip", 0, nullptr), maReplace);
  api->freeMap(blank);
  api->mapSetData(arguments, "model", model.c_str(), -1, dtUtf8, maReplace);
  api->mapSetData(arguments, "device", "cpu", -1, dtUtf8, maReplace);
  VSMap* restored = invoke(api->getPluginByNamespace("reelgrad", core), "Model");
  int error = 0;
  VSNode* node = api->mapGetNode(restored, "clip", 0, &error);
  const VSFrame* frame = node ? api->getFrame(0, node, nullptr, 0) : nullptr;
  const bool came = frame && api->getFrameWidth(frame, 0) == 64;
  if (frame) api->freeFrame(frame);
  if (node) api->freeNode(node);
  api->freeMap(restored);
  api->freeMap(arguments);
  api->freeCore(core);
  return came;
}

// What a process holds; taken after a load, and compared with what it is after many more.
struct Held {
  std::size_t files = entries("/proc/self/fd"), threads = entries("/proc/self/task");
  std::int64_t memory_kb = resident_kb();
};

// The kernel lists a thread a little longer than its join takes.
void wait_for_threads(std::size_t threads) {
  for (int i = 0; i < 200 && entries("/proc/self/task") > threads; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

// Editors evaluate a script anew at each change.
template <class Use>
void expect_steady_over_fifty(Use&& use) {
  std::optional<Held> fifth;
  for (int i = 1; i <= 50; ++i) {
    ASSERT_NO_FATAL_FAILURE(use()) << "time " << i;
    if (i == 5) fifth.emplace();
  }
  wait_for_threads(fifth->threads);
  const Held last;
  EXPECT_EQ(last.files, fifth->files);
  EXPECT_LE(last.threads, fifth->threads);
  EXPECT_LE(static_cast<double>(last.memory_kb), 1.02 * static_cast<double>(fifth->memory_kb));
}

TEST_F(PluginTest, SlowLoadedAndUnloadedFiftyTimes) {
  void* library = ::dlopen(REELGRAD_TEST_VAPOURSYNTH, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << ::dlerror();
  const auto get_api = reinterpret_cast<VSGetVapourSynthAPI>(::dlsym(library, "getVapourSynthAPI"));
  const VSAPI* api = get_api(VAPOURSYNTH_API_VERSION);
  ASSERT_NE(api, nullptr);
  expect_steady_over_fifty([&] { ASSERT_TRUE(use_plugin_once(api, model().string())); });
}

// As reelgrad itself evaluates scripts, in one process with the engine of `apply`.
TEST_F(PluginTest, SlowAScriptIsReloadedFiftyTimes) {
  const fs::path script = folder_->write(
      "reloaded.vpy", "import vapoursynth as vs\ncore = vs.core\ncore.std.LoadPlugin(r'" + kPlugin +
                          "')\nclip = core.std.BlankClip(format=vs.YUV420P8, width=96, height=64, length=8)\n"
                          "for _ in range(2):\n"
                          "    clip = core.reelgrad.Model(clip, r'" +
                          model().string() + "', device='cpu')\nclip.set_output()\n");
  expect_steady_over_fifty([&] {
    const Clip clip = Script::open(script, {.threads = 2}).output(0).value();
    FrameStream stream(clip, 0, 3);
    for (int n = 0; n < 3; ++n) ASSERT_EQ(stream.next().value().view().width, 4 * 96);
  });
}

class PluginGpuTest : public PluginTest {};

TEST_F(PluginGpuTest, AClipOnTheCardGivesTheSamePictures) {
  const std::string said = python("card");
  if (said.starts_with("skipped:")) GTEST_SKIP() << said;
  EXPECT_EQ(said, "card ok\n");
}

TEST(PluginBinary, NeedsNoTorchAndStaysMapped) {
  const std::string section = output_of({"readelf", "-dW", kPlugin});
  EXPECT_THAT(section, AllOf(HasSubstr("NODELETE"), Not(HasSubstr("libtorch")), Not(HasSubstr("libc10")),
                             Not(HasSubstr("libcu")), Not(HasSubstr("libreelgrad.so"))));
  const std::vector<std::string> symbols = lines_of(output_of({"nm", "-D", "--defined-only", kPlugin}));
  ASSERT_EQ(symbols.size(), 1U);
  EXPECT_THAT(symbols[0], HasSubstr(" T VapourSynthPluginInit2"));
}

}  // namespace
}  // namespace reelgrad
