#include "reelgrad/data/loader.h"

#include <gmock/gmock.h>
#include <torch/torch.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/data/testing.h"
#include "reelgrad/frames/color_props.h"
#include "reelgrad/frames/convert.h"
#include "reelgrad/frames/gpu_plane_import.h"

namespace reelgrad {
namespace {

using namespace testing_data;

constexpr float kUnit = 0x1p-20F;  // of the numbered script
constexpr int kFrameNumbers = kNumberedWidth * kNumberedHeight;

// Batches of whole steps from a loader of its own.
std::vector<Batch> batches(const Config& config, std::vector<TrainingClip> clips, std::int64_t first_step,
                           std::int64_t last_step, torch::Device device = torch::kCPU,
                           const LoaderOptions& options = {}) {
  TrainingLoader loader(std::move(clips), config, device, first_step, options);
  std::vector<Batch> list;
  for (std::int64_t step = first_step; step < last_step; ++step)
    list.push_back(loader.next(step, 0, config.data.batch));
  return list;
}

void expect_equal(const std::vector<Batch>& a, const std::vector<Batch>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(torch::equal(a[i].input, b[i].input)) << i;
    EXPECT_TRUE(torch::equal(a[i].target, b[i].target)) << i;
  }
}

torch::Tensor repeated(const torch::Tensor& image, int scale) {
  return image.repeat_interleave(scale, -1).repeat_interleave(scale, -2);
}

// As Orientation says; `crop` [C, H, W].
torch::Tensor oriented(torch::Tensor crop, const Orientation& orientation) {
  if (orientation.transpose) crop = crop.transpose(1, 2);
  if (orientation.flip_x) crop = crop.flip(2);
  if (orientation.flip_y) crop = crop.flip(1);
  return crop;
}

class TrainingLoaderTest : public testing::Test {
 protected:
  test::TemporaryFolder folder_;
  std::filesystem::path numbered_ = folder_.write("numbered.vpy", kNumberedScript);
};

TEST_F(TrainingLoaderTest, InputAndTargetShowTheSamePlaceAtTheSameTime) {
  const Config config = numbered_config(numbered_);
  const std::vector<TrainingClip> clips = open_clips(config);
  const Sampler sampler({clips[0].span}, sampler_config(config));
  // 60 steps of 8 samples are 120 segments of 4 frames: every slot is used again many times.
  const std::vector<Batch> list = batches(config, clips, 0, 60);
  for (std::int64_t step = 0; step < 60; ++step) {
    const Batch& batch = list[static_cast<std::size_t>(step)];
    ASSERT_EQ(batch.input.sizes(), torch::IntArrayRef({8, 1, 12, 12}));
    ASSERT_EQ(batch.target.sizes(), torch::IntArrayRef({8, 1, 24, 24}));
    EXPECT_TRUE(torch::equal(batch.target, repeated(batch.input, 2)));
    for (int i = 0; i < 8; ++i) {
      const Sample sample = sampler.sample(step, i);
      const auto first = static_cast<float>(sample.frame * kFrameNumbers + sample.y * kNumberedWidth + sample.x);
      const torch::Tensor plain =
          (first + torch::arange(12).view({12, 1}) * kNumberedWidth + torch::arange(12)) * kUnit;
      EXPECT_TRUE(torch::equal(batch.input[i], oriented(plain.unsqueeze(0), sample.orientation)));
    }
  }
}

TEST_F(TrainingLoaderTest, AWindowHoldsFramesOfOneDistanceAndTheTargetIsItsMiddle) {
  Config config = numbered_config(numbered_);
  config.data.window = 3;
  config.data.frame_step = 2;
  config.data.segment_frames = 6;
  for (const Batch& batch : batches(config, open_clips(config), 0, 20)) {
    ASSERT_EQ(batch.input.sizes(), torch::IntArrayRef({8, 3, 1, 12, 12}));
    EXPECT_TRUE(torch::equal(batch.target, repeated(batch.input.select(1, 1), 2)));
    const torch::Tensor distance = batch.input.slice(1, 1) - batch.input.slice(1, 0, 2);
    EXPECT_TRUE(distance.eq(2 * kFrameNumbers * kUnit).all().item<bool>());
  }
}

TEST_F(TrainingLoaderTest, ATemporalLossGetsTheWindowsAndTargetsOfTwoNeighbours) {
  for (const auto& [window, frame_step] : {std::pair{1, 1}, {3, 1}, {3, 2}, {1, 3}}) {
    Config config = numbered_config(numbered_);
    config.data.window = window;
    config.data.frame_step = frame_step;
    config.data.segment_frames = 8;
    config.loss.temporal = 1;
    for (const Batch& batch : batches(config, open_clips(config), 0, 10)) {
      ASSERT_EQ(batch.input.sizes(), torch::IntArrayRef({8, window + 1, 1, 12, 12}));
      ASSERT_EQ(batch.target.sizes(), torch::IntArrayRef({8, 2, 1, 24, 24}));
      EXPECT_TRUE(torch::equal(batch.target, repeated(batch.input.narrow(1, window / 2, 2), 2)));
      const torch::Tensor distance = batch.input.slice(1, 1) - batch.input.slice(1, 0, window);
      EXPECT_TRUE(distance.eq(frame_step * kFrameNumbers * kUnit).all().item<bool>());
    }
  }
}

// Of each sample of each batch, the numbers of its window's frames.
std::vector<std::vector<std::int64_t>> windows_of(const std::vector<Batch>& list) {
  std::vector<std::vector<std::int64_t>> windows;
  for (const Batch& batch : list) {
    const torch::Tensor numbers = (batch.input.select(-1, 0).select(-1, 0).select(-1, 0) / (kFrameNumbers * kUnit))
                                      .floor()
                                      .to(torch::kLong)
                                      .contiguous();  // [N, T]
    for (std::int64_t i = 0; i < numbers.size(0); ++i) {
      const auto* first = numbers[i].data_ptr<std::int64_t>();
      windows.emplace_back(first, first + numbers.size(1));
    }
  }
  return windows;
}

TEST_F(TrainingLoaderTest, WindowsDoNotCrossTheCutsThatPropertiesTellOf) {
  Config config = numbered_config(numbered_);
  config.data.window = 3;
  config.data.segment_frames = 8;
  std::set<std::int64_t> middles;
  for (const auto& window : windows_of(batches(config, open_clips(config, {{"cut", "13"}}), 0, 60))) {
    EXPECT_EQ(window.front() < 13, window.back() < 13) << window.front() << " to " << window.back();
    middles.insert(window[1]);
  }
  EXPECT_TRUE(middles.contains(11) && middles.contains(14));
  config.data.scene_cuts = "off";
  bool crosses = false;
  for (const auto& window : windows_of(batches(config, open_clips(config, {{"cut", "13"}}), 0, 60))) {
    crosses = crosses || (window.front() < 13 && window.back() >= 13);
  }
  EXPECT_TRUE(crosses);
}

TEST_F(TrainingLoaderTest, NorDoTheTwoFramesOfATemporalLoss) {
  Config config = numbered_config(numbered_);
  config.data.segment_frames = 8;
  config.loss.temporal = 1;
  std::set<std::int64_t> firsts;
  for (const auto& pair : windows_of(batches(config, open_clips(config, {{"cut", "13"}}), 0, 60))) {
    ASSERT_EQ(pair[1], pair[0] + 1);
    firsts.insert(pair[0]);
  }
  // Segments begin at 0, 8, …, 32: no pair reaches from one to the next, nor over the cut.
  std::set<std::int64_t> expected;
  for (std::int64_t frame = 0; frame < 40; ++frame) {
    if (frame % 8 != 7 && frame != 12) expected.insert(frame);
  }
  EXPECT_EQ(firsts, expected);
}

TEST_F(TrainingLoaderTest, FramesThatRepeatTheOneBeforeAreLeftOut) {
  Config config = numbered_config(numbered_);
  config.data.window = 3;
  config.data.segment_frames = 8;
  for (const bool skip : {true, false}) {
    config.data.skip_duplicates = skip;
    std::set<std::int64_t> distances;
    for (const auto& window : windows_of(batches(config, open_clips(config, {{"hold", "2"}}), 0, 30))) {
      for (const std::size_t t : {1, 2}) distances.insert(window[t] - window[t - 1]);
    }
    EXPECT_EQ(distances, skip ? std::set<std::int64_t>{2} : (std::set<std::int64_t>{0, 2}));
  }
}

TEST_F(TrainingLoaderTest, NeitherSpeedNorThreadsNorAResumeChangeABit) {
  const Config config = numbered_config(numbered_);
  const std::vector<Batch> fast = batches(config, open_clips(config, {}, 1), 0, 12);
  const std::vector<Batch> slow = batches(config, open_clips(config, {{"sleep", "0.01"}}, 8), 0, 12);
  expect_equal(fast, slow);
  const std::vector<Batch> resumed = batches(config, open_clips(config), 7, 12);
  expect_equal({fast.begin() + 7, fast.end()}, resumed);
}

TEST_F(TrainingLoaderTest, NorDoesTheNumberOfDecoders) {
  const Config config = numbered_config(numbered_);
  const std::vector<Batch> one = batches(config, open_clips(config), 0, 30, torch::kCPU, {.decoders = 1});
  for (const int decoders : {2, 7}) {
    expect_equal(one, batches(config, open_clips(config), 0, 30, torch::kCPU, {.decoders = decoders}));
  }
}

// Field case F4: a run over 64 frames that stopped after five steps goes on with other numbers of threads everywhere.
TEST_F(TrainingLoaderTest, AResumedRunDrawsWhatTheUnbrokenOneDoesAtAnyThreadCount) {
  Config config = numbered_config(numbered_);
  config.data.batch = 4;
  const testing_data::Args frames{{"frames", "64"}};
  const std::vector<Batch> unbroken = batches(config, open_clips(config, frames), 0, 20);
  const int threads_before = at::get_num_threads();
  for (const int threads : {1, 3, 8}) {
    SCOPED_TRACE(threads);
    at::set_num_threads(threads);
    const std::vector<Batch> resumed =
        batches(config, open_clips(config, frames, threads), 5, 20, torch::kCPU, {.decoders = threads});
    expect_equal({unbroken.begin() + 5, unbroken.end()}, resumed);
  }
  at::set_num_threads(threads_before);
}

TEST_F(TrainingLoaderTest, MicroBatchesAreThePartsOfAStep) {
  Config config = numbered_config(numbered_);
  const std::vector<Batch> whole = batches(config, open_clips(config), 0, 3);
  config.data.batch = 4;
  config.optimizer.accumulate = 2;
  TrainingLoader loader(open_clips(config), config, torch::kCPU, 0);
  for (std::int64_t step = 0; step < 3; ++step) {
    const Batch first = loader.next(step, 0, 4), second = loader.next(step, 4, 4);
    EXPECT_TRUE(torch::equal(torch::cat({first.input, second.input}), whole[static_cast<std::size_t>(step)].input));
  }
}

TEST_F(TrainingLoaderTest, ASegmentThatIsHeldIsNotDecodedAgain) {
  Config config = numbered_config(numbered_);
  config.data.pool_frames = 64;
  const std::filesystem::path log = folder_.path() / "frames";
  TrainingLoader loader(open_clips(config, {{"frames", "24"}, {"log", log.string()}}), config, torch::kCPU, 0);
  for (std::int64_t step = 0; step < 50; ++step) loader.next(step, 0, 8);
  // Each frame is asked for as a target and as an input; VapourSynth's cache may or may not make it once for both.
  EXPECT_LE(std::filesystem::file_size(log), 2 * 24U);
  EXPECT_GE(std::filesystem::file_size(log), 24U);
}

// Whole frames through convert.h, cropped here: another way to the same pixels.
void expect_crops_of_whole_frames(const Config& config, const std::vector<TrainingClip>& clips, int steps) {
  std::vector<ClipSpan> spans;
  for (const TrainingClip& clip : clips) spans.push_back(clip.span);
  const Sampler sampler(spans, sampler_config(config));
  const NetworkColor color = parse_network_color(config.data.color);
  std::set<int> scripts;
  TrainingLoader loader(clips, config, torch::kCPU, 0);
  for (int step = 0; step < steps; ++step) {
    const Batch batch = loader.next(step, 0, config.data.batch);
    for (int i = 0; i < config.data.batch; ++i) {
      const Sample sample = sampler.sample(step, i);
      const int script = sampler.segment(sample.segment).script;
      scripts.insert(script);
      const ClipPair& pair = clips[static_cast<std::size_t>(script)].pair;
      const auto crop = [&](const Clip& clip, int scale) {
        const Frame frame = clip.frame(sample.frame);
        const FrameView view = frame.view();
        const ColorSpec spec = resolve_color(view.format, view.color, pair.target.info().height, config.data.overrides,
                                             clip.name(), sample.frame);
        const int size = config.data.crop_px * scale, x = sample.x * scale, y = sample.y * scale;
        const torch::Tensor whole = to_tensor(view, spec, color, torch::kCPU);
        return oriented(whole.slice(1, y, y + size).slice(2, x, x + size), sample.orientation);
      };
      EXPECT_TRUE(torch::allclose(batch.input[i], crop(pair.input, 1), 0, 1e-6)) << pair.input.name();
      EXPECT_TRUE(torch::allclose(batch.target[i], crop(pair.target, config.model.scale), 0, 1e-6))
          << pair.target.name();
    }
  }
  EXPECT_EQ(scripts.size(), config.data.script.size());
}

std::string colorful_script(const std::string& format, int width, int height, const std::string& props) {
  return "import numpy as np\nimport vapoursynth as vs\ncore = vs.core\nformat = core.get_video_format(vs." + format +
         ")\nclip = core.std.BlankClip(width=" + std::to_string(width) + ", height=" + std::to_string(height) +
         ", format=format, length=10)\n" + props + R"(
def noise(n, f):
    f = f.copy()
    random = np.random.default_rng(n)
    for p in range(f.format.num_planes):
        plane = np.asarray(f[p])
        if f.format.sample_type == vs.FLOAT:
            plane[:] = random.random(plane.shape) - (0.5 if p > 0 and f.format.color_family == vs.YUV else 0)
        else:
            plane[:] = random.integers(0, 1 << f.format.bits_per_sample, plane.shape)
    return f
clip = core.std.ModifyFrame(clip, clip, noise)
small = core.resize.Bicubic(clip, clip.width // 2, clip.height // 2)
if globals().get("card"):
    clip, small = core.std.GPUUpload(clip), core.std.GPUUpload(small)
clip.set_output(0)
small.set_output(1)
)";
}

TEST_F(TrainingLoaderTest, WeightedScriptsOfManyFormatsGiveCropsOfWholeFrames) {
  Config config = numbered_config("");
  config.data.crop_px = 16;
  config.data.color = "rgb";
  config.data.script = {
      {.path = folder_.write("a.vpy", colorful_script("YUV420P8", 72, 48, "clip = clip.std.SetFrameProps(_Matrix=1)")),
       .weight = 2},
      {.path = folder_.write("b.vpy", colorful_script("RGB24", 64, 80, "")), .weight = 1},
      {.path = folder_.write(
           "c.vpy", colorful_script("YUV422P10", 64, 48, "clip = clip.std.SetFrameProps(_Matrix=9, _Range=1)")),
       .weight = 1},
      {.path = folder_.write("d.vpy", colorful_script("YUV444PS", 66, 48, "clip = clip.std.SetFrameProps(_Matrix=6)")),
       .weight = 0.5}};
  expect_crops_of_whole_frames(config, open_clips(config), 12);
}

TEST_F(TrainingLoaderTest, GrayAndYuvNetworksGetCropsOfWholeFrames) {
  Config config = numbered_config("");
  config.data.crop_px = 16;
  config.data.script = {
      {.path = folder_.write("g.vpy", colorful_script("GRAY16", 72, 48, "clip = clip.std.SetFrameProps(_Range=1)"))},
      {.path =
           folder_.write("y.vpy", colorful_script("YUV420P8", 64, 64, "clip = clip.std.SetFrameProps(_Matrix=1)"))}};
  expect_crops_of_whole_frames(config, open_clips(config), 4);
  config.data.color = "yuv444";
  config.data.script.erase(config.data.script.begin());
  expect_crops_of_whole_frames(config, open_clips(config), 4);
}

// Frames whose samples the first `steps` steps draw from.
std::set<std::int64_t> drawn_frames(const Config& config, const std::vector<TrainingClip>& clips, int steps) {
  std::set<std::int64_t> frames;
  for (const Batch& batch : batches(config, clips, 0, steps)) {
    const torch::Tensor numbers =
        (batch.input / (kFrameNumbers * kUnit)).floor().to(torch::kLong).flatten().contiguous();
    frames.insert(numbers.data_ptr<std::int64_t>(), numbers.data_ptr<std::int64_t>() + numbers.numel());
  }
  return frames;
}

TEST_F(TrainingLoaderTest, ValidationFramesAreNeverDrawn) {
  Config config = numbered_config(numbered_);
  config.validation.frames = "0.8:";
  std::vector<TrainingClip> clips = open_clips(config);
  ASSERT_EQ(clips.size(), 1U);
  EXPECT_EQ(clips[0].span.end, 32);
  EXPECT_EQ(*drawn_frames(config, clips, 60).rbegin(), 31);

  config.validation.frames = "10:20";
  clips = open_clips(config);
  ASSERT_EQ(clips.size(), 2U);
  std::set<std::int64_t> expected;
  for (std::int64_t frame = 0; frame < 40; ++frame) {
    if (frame < 10 || frame >= 20) expected.insert(frame);
  }
  EXPECT_EQ(drawn_frames(config, clips, 120), expected);
}

TEST_F(TrainingLoaderTest, ValidationAtTheStartAndShortRestsAreCutOff) {
  Config config = numbered_config(numbered_);
  config.data.window = 3;
  config.validation.frames = "1:20";  // frame 0 alone is no window
  const std::vector<TrainingClip> clips = open_clips(config);
  ASSERT_EQ(clips.size(), 1U);
  EXPECT_EQ(clips[0].span.begin, 20);
}

std::string refusal(const Config& config) {
  try {
    open_clips(config);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "";
}

TEST_F(TrainingLoaderTest, RefusesWhatTheClipMakesImpossible) {
  Config config = numbered_config(numbered_);
  const std::string script = "data.script: " + numbered_.string();
  config.data.crop_px = 48;
  EXPECT_EQ(refusal(config), script + ": the input is 64x32, but data.crop_px = 48: allowed are 1 to 32");

  config = numbered_config(numbered_);
  config.data.script[0].start = 10;
  config.data.script[0].end = 60;
  EXPECT_EQ(refusal(config),
            script + ": start = 10 and end = 60 are frames 10 to 60 (not included), but the clip has 40 frames");

  config = numbered_config(numbered_);
  config.data.script[0].start = 30;
  config.validation.frames = "20:";
  EXPECT_EQ(
      refusal(config),
      script + ": validation.frames = \"20:\" (frames 20 to 39) leaves nothing of the frames 30 to 39 to train on");

  config.validation.frames = "50:";
  EXPECT_THAT(refusal(config), testing::HasSubstr("validation.frames"));

  config = numbered_config(numbered_);
  config.data.window = 5;
  config.data.segment_frames = 5;
  config.validation.frames = "3:37";
  EXPECT_THAT(refusal(config), testing::HasSubstr("data.window = 5"));

  config = numbered_config(numbered_);
  config.model.scale = 3;
  EXPECT_THAT(refusal(config), testing::HasSubstr("model.scale"));
}

// The step at which frame 37's error arrives, and its text.
std::pair<std::int64_t, std::string> failing_step(const Config& config, const Args& args) {
  TrainingLoader loader(open_clips(config, args), config, torch::kCPU, 0);
  for (std::int64_t step = 0; step < 200; ++step) {
    try {
      loader.next(step, 0, config.data.batch);
    } catch (const Error& error) {
      return {step, error.what()};
    }
  }
  return {-1, ""};
}

TEST_F(TrainingLoaderTest, ABadFrameIsReportedAtTheSameStepHoweverFastItIsFound) {
  const Config config = numbered_config(numbered_);
  const auto [fast_step, fast_text] = failing_step(config, {{"fail", "37"}});
  const auto [slow_step, slow_text] = failing_step(config, {{"fail", "37"}, {"sleep", "0.005"}});
  EXPECT_GE(fast_step, 0);
  EXPECT_EQ(fast_step, slow_step);
  EXPECT_THAT(fast_text, testing::AllOf(testing::HasSubstr("numbered.vpy"), testing::HasSubstr("frame 37"),
                                        testing::HasSubstr("this frame is bad")));
}

// Frames of the numbered script that a batch shows.
std::set<std::int64_t> frames_shown(const Batch& batch) {
  std::set<std::int64_t> frames;
  for (std::int64_t i = 0; i < batch.input.size(0); ++i) {
    frames.insert(std::lround(batch.input[i].min().item<float>() / kUnit) / kFrameNumbers);
  }
  return frames;
}

TEST_F(TrainingLoaderTest, AFrameThatFailedIsAskedForAgainWhenItsSegmentIsDueAgain) {
  const Config config = numbered_config(numbered_);
  const std::vector<TrainingClip> clips =
      open_clips(config, {{"fail", "37"}, {"mended", (folder_ / "mended").string()}});
  TrainingLoader loader(clips, config, torch::kCPU, 0);
  std::int64_t step = 0, last_failed = -1;
  const auto shows_it = [&] {
    try {
      return frames_shown(loader.next(step++, 0, config.data.batch)).contains(37);
    } catch (const Error&) {
      last_failed = step - 1;
      return false;
    }
  };
  while (last_failed < 0 && step < 200) EXPECT_FALSE(shows_it());
  const std::int64_t first_failed = last_failed;
  ASSERT_GE(first_failed, 0);
  folder_.write("mended", "");
  bool shown = false;
  while (step < first_failed + 100) shown = shows_it() || shown;
  EXPECT_TRUE(shown);
  // Only the steps fail whose turns of the segment had been decoded by then: a pool of three segments, and one ahead.
  EXPECT_LE(last_failed, first_failed + 4);
}

TEST_F(TrainingLoaderTest, EndsAtOnceInTheMiddleOfSlowDecoding) {
  Config config = numbered_config(numbered_);
  config.data.segment_frames = 40;
  config.data.pool_frames = 40;
  const std::vector<TrainingClip> clips = open_clips(config, {{"sleep", "0.1"}}, 1);
  const auto begin = std::chrono::steady_clock::now();
  { TrainingLoader loader(clips, config, torch::kCPU, 0); }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));  // 4 s for all 40 frames
}

class CapturedLog {
 public:
  CapturedLog() {
    log::set_sink([this](log::Level level, std::string_view message) {
      (level == log::Level::warning ? warnings : others).emplace_back(message);
    });
  }
  ~CapturedLog() { log::set_sink({}); }
  std::vector<std::string> warnings, others;
};

TEST_F(TrainingLoaderTest, WarnsOfAFrameFlaggedInterlaced) {
  Config config = numbered_config(numbered_);
  config.data.pool_frames = 40;
  CapturedLog log;
  batches(config, open_clips(config, {{"field", "3"}}), 0, 20);
  EXPECT_THAT(log.warnings,
              testing::Contains(testing::AllOf(testing::HasSubstr("numbered.vpy"), testing::HasSubstr("frame 3 "),
                                               testing::HasSubstr("_FieldBased"))));
}

TEST_F(TrainingLoaderTest, WarnsWhenTrainingWaitsForTheScript) {
  const Config config = numbered_config(numbered_);
  CapturedLog log;
  TrainingLoader loader(open_clips(config, {{"sleep", "0.02"}}, 1), config, torch::kCPU, 0,
                        {.wait_window = std::chrono::duration<double>(0.3)});
  const auto begin = std::chrono::steady_clock::now();
  loader.next(0, 0, 8);
  loader.take_wait_seconds();
  const auto filled = std::chrono::steady_clock::now();
  for (std::int64_t step = 1; step < 12; ++step) loader.next(step, 0, 8);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - filled).count();
  EXPECT_GT(loader.take_wait_seconds() / seconds, 0.8);  // the rest is the gathering
  EXPECT_GT(filled, begin);
  ASSERT_THAT(log.warnings, testing::SizeIs(1));
  EXPECT_THAT(log.warnings[0], testing::AllOf(testing::HasSubstr("numbered.vpy"), testing::HasSubstr("the script"),
                                              testing::HasSubstr("data.reuse")));
  EXPECT_THAT(log.others, testing::Contains(testing::ContainsRegex(
                              "decoding: the run needs [0-9.]+ frames a second, the scripts give up to [0-9.]+")));
}

TEST_F(TrainingLoaderTest, SaysWhatItHolds) {
  Config config = numbered_config(numbered_);
  TrainingLoader loader(open_clips(config), config, torch::kCPU, 0);
  // 8 samples a step use up 2 segments of 4 frames: 2 beyond the 3 resident ones.
  EXPECT_EQ(loader.describe(), "40 frames in 10 segments of up to 4; pool of 20 frames in host memory (800.0 KiB)");
}

// What 50,000 decoded frames leave behind. Resident memory and descriptors are compared after the first fifth and at
// the end.
std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
}

void expect_nothing_grows(const Config& config, std::vector<TrainingClip> clips, torch::Device device) {
  constexpr std::int64_t kFrames = 50'000;
  const std::int64_t steps = kFrames / config.data.batch;  // each frame gives one crop
  TrainingLoader loader(std::move(clips), config, device, 0);
  std::int64_t bytes = 0;
  std::ptrdiff_t descriptors = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    loader.next(step, 0, config.data.batch);
    if (step != steps / 5) continue;
    bytes = resident_bytes();
    descriptors = open_descriptors();
  }
  EXPECT_LE(static_cast<double>(resident_bytes()), 1.02 * static_cast<double>(bytes));
  EXPECT_LE(open_descriptors(), descriptors + 50);  // those of frames in flight
}

Config growth_config(const test::TemporaryFolder& folder) {
  Config config = numbered_config(folder.write("plain.vpy", R"(
import vapoursynth as vs
core = vs.core
clip = core.std.BlankClip(width=256, height=128, format=vs.YUV420P8, length=4000)
clip = core.std.SetFrameProps(clip, _Matrix=1)
small = core.resize.Bicubic(clip, 128, 64)
if globals().get("card"):
    clip, small = core.std.GPUUpload(clip), core.std.GPUUpload(small)
clip.set_output(0)
small.set_output(1)
)"));
  config.data.batch = 64;
  config.data.segment_frames = 16;
  config.data.pool_frames = 64;
  config.data.color = "rgb";
  return config;
}

// What VapourSynth keeps up to its limit is no growth.
constexpr std::int64_t kSmallCache = 8 << 20;

std::vector<TrainingClip> clips_in_memory(const Config& config) {
  return open_training_clips(
      config, [](const ScriptConfig& script) { return Script::open(script.path, {.cache_bytes = kSmallCache}); });
}

TEST(TrainingLoaderSlowTest, NothingGrowsOver50000Frames) {
  const test::TemporaryFolder folder;
  const Config config = growth_config(folder);
  expect_nothing_grows(config, clips_in_memory(config), torch::kCPU);
}

// Of a script whose outputs lie in the card's memory when its variable `card` is set.
std::vector<TrainingClip> clips_on_card(const Config& config, torch::Device card) {
  std::vector<TrainingClip> clips = open_training_clips(config, [&](const ScriptConfig& script) {
    return Script::open(script.path, {.args = {{"card", "1"}}, .cache_bytes = kSmallCache, .card = card_of(card)});
  });
  keep_on_card(clips, card);
  return clips;
}

class TrainingLoaderGpuTest : public TrainingLoaderTest {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA card";
  }
};

TEST_F(TrainingLoaderGpuTest, EveryPlaceOfThePoolGivesTheSameBatches) {
  Config config = numbered_config("");
  config.data.crop_px = 16;
  config.data.color = "rgb";
  config.data.script = {
      {.path = folder_.write("a.vpy", colorful_script("YUV420P8", 72, 48, "clip = clip.std.SetFrameProps(_Matrix=1)"))},
      {.path = folder_.write("b.vpy", colorful_script("RGB48", 64, 80, ""))}};
  const torch::Device card(torch::kCUDA, 0);
  const std::vector<Batch> host = batches(config, open_clips(config), 0, 20);
  const std::vector<Batch> device =
      batches(config, open_clips(config), 0, 20, card, {.place = FramePool::Place::device});
  const std::vector<Batch> pinned =
      batches(config, open_clips(config), 0, 20, card, {.place = FramePool::Place::pinned_host});
  expect_equal(device, pinned);
  for (std::size_t i = 0; i < host.size(); ++i) {
    EXPECT_TRUE(torch::allclose(device[i].input.cpu(), host[i].input, 0, 0x1p-22));
    EXPECT_TRUE(torch::allclose(device[i].target.cpu(), host[i].target, 0, 0x1p-22));
  }
}

TEST_F(TrainingLoaderGpuTest, FreeMemoryChoosesThePlaceAndChangesNothing) {
  Config config = numbered_config(folder_.write("a.vpy", colorful_script("YUV420P8", 720, 480, "")));
  config.data.color = "rgb";
  const torch::Device card(torch::kCUDA, 0);
  std::vector<std::vector<Batch>> lists;
  for (const std::size_t free_bytes : {std::size_t{1} << 20, std::size_t{8} << 30}) {
    TrainingLoader loader(open_clips(config), config, card, 0, {.free_bytes = free_bytes});
    EXPECT_THAT(loader.describe(), testing::HasSubstr(free_bytes < (1U << 30) ? "page-locked" : "on the card"));
    lists.push_back(batches(config, open_clips(config), 0, 12, card, {.free_bytes = free_bytes}));
  }
  expect_equal(lists[0], lists[1]);
}

TEST_F(TrainingLoaderGpuTest, FramesOnTheCardGiveTheSameBatches) {
  Config config = numbered_config(folder_.write("a.vpy", colorful_script("YUV420P8", 72, 48, "")));
  config.data.crop_px = 16;
  config.data.color = "rgb";
  config.data.window = 3;  // cuts and repetitions are looked for, on the card too
  const torch::Device card(torch::kCUDA, 0);
  const std::vector<Batch> host = batches(config, open_clips(config), 0, 20, card);
  const std::vector<TrainingClip> clips = clips_on_card(config, card);
  if (const FramePath& path = clips[0].pair.input.frame_path(); !path.gpu) GTEST_SKIP() << path.why;
  for (const FramePool::Place place : {FramePool::Place::device, FramePool::Place::pinned_host}) {
    expect_equal(host, batches(config, clips, 0, 20, card, {.place = place}));
  }
}

TEST_F(TrainingLoaderGpuTest, NothingGrowsOver50000Frames) {
  const Config config = growth_config(folder_);
  const torch::Device card(torch::kCUDA, 0);
  expect_nothing_grows(config, clips_in_memory(config), card);
  expect_nothing_grows(config, clips_on_card(config, card), card);
}

TEST_F(TrainingLoaderGpuTest, SlotsAreNotOverwrittenWhileTheCardStillReadsThem) {
  const Config config = numbered_config(numbered_);
  const torch::Device card(torch::kCUDA, 0);
  for (const FramePool::Place place : {FramePool::Place::device, FramePool::Place::pinned_host}) {
    TrainingLoader loader(open_clips(config), config, card, 0, {.place = place});
    const torch::Tensor busy = torch::rand({4096, 4096}, card);
    torch::Tensor mismatches = torch::zeros({}, torch::dtype(torch::kLong).device(card));
    for (std::int64_t step = 0; step < 100; ++step) {
      torch::mm(busy, busy);  // the gathers queue up behind this
      const Batch batch = loader.next(step, 0, 8);
      mismatches += batch.target.ne(repeated(batch.input, 2)).sum();
    }
    EXPECT_EQ(mismatches.item<std::int64_t>(), 0);
  }
}

}  // namespace
}  // namespace reelgrad
