#include "reelgrad/restore/validation.h"

#include <c10/core/CPUAllocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <sstream>

#include "reelgrad/base/error.h"
#include "reelgrad/base/process.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/restore/test_clips.h"
#include "reelgrad/restore/test_networks.h"
#include "reelgrad/train/test_support.h"

namespace reelgrad {
namespace {

class ValidationTest : public testing::Test {
 protected:
  // Five frames of the waves.
  ValidationClip clip(bool fail = false) const {
    OpenOptions options;
    if (fail) options.args["fail"] = "yes";
    return {"waves", training_pair(Script::open(script_, options), 2), 1, 6};
  }

  static Restorer restorer(int tile = 0) {
    RestoreOptions options;
    options.precision = "fp32";
    options.tile_px = tile;
    return Restorer(compact(), spec(), options);
  }

  static NetworkSpec spec() {
    NetworkSpec spec;
    spec.options = {{"features", "8"}, {"convs", "2"}};
    return spec;
  }

  static std::shared_ptr<Network> compact() {
    torch::manual_seed(21);
    return make_network(spec());
  }

  test::TemporaryFolder folder_;
  const std::filesystem::path script_ = folder_.write("waves.vpy", kWavesScript);
};

// The same numbers from VapourSynth's own frames and numpy.
constexpr const char* kValidationReference = R"(
import sys, runpy
import numpy as np, vapoursynth as vs
runpy.run_path(sys.argv[1])
target, small = (vs.get_output(i).clip for i in (0, 1))
bicubic = small.resize.Bicubic(96, 64)
def planes(clip, n):
    frame = clip.get_frame(n)
    return np.stack([np.asarray(frame[p]) for p in range(3)]).astype(np.float64) / 255
def y(p):
    return (65.481 * p[0] + 128.553 * p[1] + 24.966 * p[2] + 16) / 255
def psnr(a, b):
    return 10 * np.log10(1 / ((a - b) ** 2).mean())
rgb = np.mean([psnr(planes(bicubic, n), planes(target, n)) for n in range(1, 6)])
luma = np.mean([psnr(y(planes(bicubic, n)), y(planes(target, n))) for n in range(1, 6)])
print(rgb, luma)
)";

TEST_F(ValidationTest, BicubicScoresEqualVapourSynthAndNumpy) {
  Restorer ours = restorer();
  const std::vector<ClipScores> scores = measure(ours, {clip()}, {});
  const ProcessResult reference =
      run_process({REELGRAD_TEST_PYTHON, "-c", kValidationReference, script_.string()}, std::chrono::seconds(60));
  ASSERT_EQ(reference.exit_code, 0) << reference.err;
  double rgb = 0, y = 0;
  std::istringstream(reference.out) >> rgb >> y;
  ASSERT_EQ(scores.size(), 1U);
  EXPECT_EQ(scores[0].name, "waves");
  EXPECT_EQ(scores[0].frames, 5);
  EXPECT_NEAR(scores[0].bicubic.psnr_rgb, rgb, 1e-4);
  EXPECT_NEAR(scores[0].bicubic.psnr_y, y, 1e-4);
  EXPECT_GT(scores[0].bicubic.ssim_rgb, 0.5);
  EXPECT_LT(scores[0].ours.psnr_rgb, rgb) << "an untrained network cannot be better";
}

TEST_F(ValidationTest, TiledScoresEqualWholeOnes) {
  Restorer whole = restorer(), tiled = restorer(16);
  const ClipScores a = overall(measure(whole, {clip()}, {})), b = overall(measure(tiled, {clip()}, {}));
  EXPECT_NEAR(a.ours.psnr_rgb, b.ours.psnr_rgb, 1e-3);
  EXPECT_NEAR(a.ours.ssim_y, b.ours.ssim_y, 1e-5);
}

TEST_F(ValidationTest, OverallWeighsByFrames) {
  ClipScores a{"a", 1}, b{"b", 3};
  a.ours.psnr_rgb = 20;
  b.ours.psnr_rgb = 40;
  a.bicubic.ssim_y = 1;
  const ClipScores all = overall({a, b});
  EXPECT_EQ(all.frames, 4);
  EXPECT_DOUBLE_EQ(all.ours.psnr_rgb, 35);
  EXPECT_DOUBLE_EQ(all.bicubic.ssim_y, 0.25);
}

TEST_F(ValidationTest, ValidatorLeavesTrainingAsItWas) {
  const std::shared_ptr<Network> network = compact();
  network->train();
  const NamedTensors state = state_dict(*network);
  std::vector<torch::Tensor> before;
  for (const auto& [name, tensor] : state) before.push_back(tensor.clone());
  const torch::Tensor generator = at::globalContext().defaultGenerator(torch::kCPU).get_state();

  const std::unique_ptr<Validator> validator = make_validator({clip()}, spec(), {}, torch::kCPU);
  const ValidationRecord first = *validator->validate(*network, 10, {});
  EXPECT_EQ(first.step, 10);
  EXPECT_EQ(first.frames, 5);
  EXPECT_TRUE(network->is_training());
  EXPECT_TRUE(torch::equal(generator, at::globalContext().defaultGenerator(torch::kCPU).get_state()));
  for (std::size_t i = 0; i < state.size(); ++i) EXPECT_TRUE(torch::equal(state[i].second, before[i]));

  Restorer same = restorer();
  const ClipScores measured = overall(measure(same, {clip()}, {}));
  EXPECT_EQ(first.ours.psnr_rgb, measured.ours.psnr_rgb);
  EXPECT_EQ(first.bicubic.ssim_rgb, measured.bicubic.ssim_rgb);

  // Other weights: other scores, the same bicubic.
  {
    torch::NoGradGuard no_grad;
    for (torch::Tensor& parameter : network->parameters()) parameter.mul_(0.5);
  }
  const ValidationRecord second = *validator->validate(*network, 20, {});
  EXPECT_NE(second.ours.psnr_rgb, first.ours.psnr_rgb);
  EXPECT_EQ(second.bicubic.psnr_rgb, first.bicubic.psnr_rgb);
  EXPECT_EQ(first.preview.sizes(), (std::vector<std::int64_t>{3, 64, 4 * 96}));
}

// AlexNet and LPIPS with weights of noise: the numbers mean nothing, but they are those of the loss itself.
LossConfig lpips_of_noise(const test::TemporaryFolder& folder) {
  torch::manual_seed(3);
  NamedTensors backbone, own;
  const std::vector<std::array<std::int64_t, 4>> layers{
      {0, 64, 3, 11}, {3, 192, 64, 5}, {6, 384, 192, 3}, {8, 256, 384, 3}, {10, 256, 256, 3}};  // number, out, in, side
  for (const auto& [number, out, in, side] : layers) {
    backbone.emplace_back(fmt::format("features.{}.weight", number), torch::randn({out, in, side, side}) * 0.05);
    backbone.emplace_back(fmt::format("features.{}.bias", number), torch::randn({out}) * 0.05);
    own.emplace_back(fmt::format("lin{}.model.1.weight", own.size()), torch::rand({1, out, 1, 1}));
  }
  LossConfig config;
  config.lpips.net = "alex";
  config.lpips.backbone = folder / "alexnet.safetensors";
  config.lpips.weights = folder / "lpips.safetensors";
  write_safetensors(config.lpips.backbone, backbone);
  write_safetensors(config.lpips.weights, own);
  return config;
}

TEST_F(ValidationTest, MeasuresWithTheNetworksThatAreNamed) {
  EXPECT_TRUE(FeatureMeasures(LossConfig{}).none());
  const LossConfig config = lpips_of_noise(folder_);
  const std::shared_ptr<Network> network = compact();
  const std::unique_ptr<Validator> validator =
      make_validator({clip()}, spec(), {}, torch::kCPU, std::make_unique<FeatureMeasures>(config));
  ValidationRecord record = validator->validate(*network, 7, {}).value();
  ASSERT_TRUE(record.ours.lpips && record.bicubic.lpips);
  EXPECT_FALSE(record.ours.dists);
  record.best_by = "lpips";
  EXPECT_EQ(record.score(), -*record.ours.lpips);

  // Of each frame of bicubic against its target, by the loss.
  LpipsLoss loss(config.lpips, NetworkColor::rgb, Precision::fp32);
  Restorer ours = restorer();
  double sum = 0;
  for (std::int64_t frame = 1; frame < 6; ++frame) {
    const torch::Tensor pictures = comparison(ours, clip(), frame, {});  // input | bicubic | ours | target
    const std::vector<torch::Tensor> parts = pictures.unsqueeze(0).chunk(4, 3);
    sum += loss(parts[1].contiguous(), parts[3].contiguous()).item<double>();
  }
  EXPECT_NEAR(*record.bicubic.lpips, sum / 5, 1e-5 * sum);
}

TEST_F(ValidationTest, ValidatorStopsWhenAsked) {
  const std::shared_ptr<Network> network = compact();
  const std::unique_ptr<Validator> validator = make_validator({clip()}, spec(), {}, torch::kCPU);
  for (const int frames : {0, 2, 5, 3}) {  // in bicubic's 5 frames, then, those being known, in the network's
    int polls = 0;
    EXPECT_FALSE(validator->validate(*network, 10, [&] { return polls++ == frames; }));
  }
  Restorer same = restorer();
  const ValidationRecord whole = *validator->validate(*network, 10, [] { return false; });
  EXPECT_EQ(whole.bicubic.psnr_rgb, overall(measure(same, {clip()}, {})).bicubic.psnr_rgb);
}

TEST_F(ValidationTest, ComparisonWithAndWithoutTarget) {
  Restorer ours = restorer();
  ValidationClip pair = clip();
  const torch::Tensor four = comparison(ours, pair, 3, {});
  EXPECT_EQ(four.sizes(), (std::vector<std::int64_t>{3, 64, 4 * 96}));
  const Frame small = pair.pair.input.frame(3), large = pair.pair.target.frame(3);
  const auto sample = [](const Frame& frame, int x, int y) {
    const FrameView view = frame.view();
    return std::to_integer<int>(view.planes[1].data[y * view.planes[1].stride_bytes + x]) / 255.0;
  };
  EXPECT_NEAR(four[1][21][30].item<double>(), sample(small, 15, 10), 1e-6);
  EXPECT_NEAR(four[1][21][3 * 96 + 30].item<double>(), sample(large, 30, 21), 1e-6);
  pair.pair.target = Clip();
  EXPECT_TRUE(torch::equal(comparison(ours, pair, 3, {}), four.narrow(2, 0, 3 * 96)));
}

TEST_F(ValidationTest, AFailingFrameRaisesItsOwnError) {
  Restorer ours = restorer();
  try {
    measure(ours, {clip(/*fail=*/true)}, {});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("4"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("the tape is torn"), std::string::npos) << error.what();
  }
}

// 360 lines of input and 720 of target, neither tagged: read as two matrices, even a perfect picture would be tinted.
constexpr const char* kUntagged = R"(
import vapoursynth as vs
core = vs.core
target = core.std.BlankClip(width=1280, height=720, format=vs.YUV444P8, length=1, color=[120, 60, 200])
target.set_output(0)
target.std.CropAbs(640, 360).set_output(1)
)";

TEST_F(ValidationTest, AnUntaggedPairIsReadAlikeOnBothSides) {
  const Script script = Script::open(folder_.write("untagged.vpy", kUntagged));
  const ValidationClip flat{"flat", training_pair(script, 2), 0, 1};
  NetworkSpec rgb;
  Restorer perfect(std::make_shared<Enlarger>(2, 3), rgb, {});
  const ClipScores scores = overall(measure(perfect, {flat}, {}));
  EXPECT_EQ(scores.ours.psnr_rgb, 100);
  EXPECT_EQ(scores.bicubic.psnr_rgb, 100);
  const torch::Tensor pictures = comparison(perfect, flat, 0, {});  // [3, 720, 4 * 1280], all of one colour
  EXPECT_EQ((pictures - pictures.narrow(2, 0, 1).narrow(1, 0, 1)).abs().max().item<float>(), 0);
}

TEST_F(ValidationTest, StopsWhenAsked) {
  Restorer ours = restorer();
  std::int64_t seen = 0;
  try {
    measure(ours, {clip()}, {}, [&](std::int64_t done, std::int64_t total) {
      EXPECT_EQ(total, 2 * 5);
      return (seen = done) < 2;
    });
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::interrupted);
  }
  EXPECT_EQ(seen, 2);
}

TEST_F(ValidationTest, NoFrameIsLostWhenMemoryRunsOut) {
  auto network = std::make_shared<ThreeConvs>();
  NetworkSpec same_size;
  same_size.scale = 1;
  Restorer whole(network, same_size, {});
  ValidationClip pair = clip();
  pair.pair.target = pair.pair.input;
  const double expected = overall(measure(whole, {pair}, {})).ours.psnr_rgb;
  network->memory_px = 40 * 32;
  EXPECT_NEAR(overall(measure(whole, {pair}, {})).ours.psnr_rgb, expected, 1e-3);
  EXPECT_NE(whole.describe().find("tiles"), std::string::npos);
}

// The waves with a target of another size.
std::string waves_of(int width, int height) {
  return fmt::format(
      "{}\ntarget = target.resize.Bicubic({}, {})\ntarget.set_output(0)\n"
      "target.resize.Bicubic({}, {}).set_output(1)\n",
      kWavesScript, width, height, width / 2, height / 2);
}

// Field case B5: frames much larger than the crops of training, on a card with little memory left.
TEST_F(ValidationTest, GpuWithLittleMemoryMeasuresTheSameByTiles) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA card";
  const std::filesystem::path script = folder_.write("large.vpy", waves_of(2048, 2048));
  const torch::Device card(torch::kCUDA, 0);
  RestoreOptions options;
  options.device = card;
  options.precision = "fp32";
  const auto scores = [&] {
    Restorer restorer(compact(), spec(), options);
    return overall(measure(restorer, {{"large", training_pair(Script::open(script, {}), 2), 0, 1}}, {}));
  };
  const ClipScores roomy = scores();
  c10::cuda::CUDACachingAllocator::emptyCache();
  std::size_t free = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  const auto reserved = c10::cuda::CUDACachingAllocator::getDeviceStats(0).reserved_bytes[0].current;
  constexpr std::int64_t kLeft = 200 << 20;  // a whole frame's maps of 8 features take more
  c10::cuda::CUDACachingAllocator::setMemoryFraction(static_cast<double>(reserved + kLeft) / static_cast<double>(total),
                                                     0);
  const ClipScores tight = scores();
  c10::cuda::CUDACachingAllocator::setMemoryFraction(1, 0);
  EXPECT_NEAR(tight.ours.psnr_rgb, roomy.ours.psnr_rgb, 1e-3);
  EXPECT_NEAR(tight.ours.ssim_y, roomy.ours.ssim_y, 1e-5);
  EXPECT_NEAR(tight.bicubic.psnr_rgb, roomy.bicubic.psnr_rgb, 1e-9);
}

// --- Training beside a validation that memory does not suffice for ---

// Torch's memory of the CPU, in which no tensor may take more than so many bytes while it lives.
class SmallMemory : public c10::Allocator {
 public:
  explicit SmallMemory(std::size_t largest) : inner_(c10::GetCPUAllocator()), largest_(largest) {
    c10::SetCPUAllocator(this, kPriority);
  }
  ~SmallMemory() override { c10::SetCPUAllocator(inner_, kPriority); }
  int refused() const { return refused_; }

  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes > largest_) {
      ++refused_;
      TORCH_CHECK_WITH(OutOfMemoryError, false, "Tried to allocate ", bytes, " bytes.");
    }
    return inner_->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return inner_->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { inner_->copy_data(to, from, bytes); }

 private:
  static constexpr std::uint8_t kPriority = 1;
  c10::Allocator* inner_;
  std::size_t largest_;
  std::atomic<int> refused_ = 0;
};

Config config_of_training(const char* features) {
  Config config = test::small_config();
  config.run.steps = 8;
  config.model.options = {{"features", features}, {"convs", "1"}, {"activation", "prelu"}};
  config.ema.decay = 0.9;
  config.validation.every = 4;
  return config;
}

// Checkpoints of step 4, after its validation, and of the last step.
std::vector<Snapshot> train(const Config& config, torch::Device device, Validator* validator) {
  auto batches = test::smooth_batches(config, device);
  test::MemoryRecorder recorder;
  torch::manual_seed(3);
  Trainer trainer(config, make_network(network_spec(config)), device, batches, recorder, validator);
  trainer.run(4);
  trainer.run();
  EXPECT_EQ(recorder.validations.size(), validator == nullptr ? 0U : 2U);
  return {recorder.checkpoints.front(), recorder.checkpoints.back()};
}

// Weights, average, optimizer, loss scale, generators, meters and the memory plan.
void expect_same_state(const std::vector<Snapshot>& a, const std::vector<Snapshot>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "step " << a[i].step);
    ASSERT_EQ(a[i].step, b[i].step);
    test::expect_bit_equal(a[i].model, b[i].model);
    test::expect_bit_equal(a[i].training, b[i].training);
  }
}

// Field case B5.
TEST_F(ValidationTest, FallingBackToTilesLeavesTrainingAsItWas) {
  const Config config = config_of_training("64");
  const std::vector<Snapshot> alone = train(config, torch::kCPU, nullptr);
  const Script script = Script::open(folder_.write("larger.vpy", waves_of(192, 128)));
  const std::unique_ptr<Validator> validator =
      make_validator({{"larger", training_pair(script, 2), 0, 2}}, network_spec(config), {}, torch::kCPU);
  const SmallMemory memory(1'300'000);  // 64 features of 96x64 pixels take 1,572,864
  const std::vector<Snapshot> validated = train(config, torch::kCPU, validator.get());
  EXPECT_GT(memory.refused(), 0);
  expect_same_state(validated, alone);
}

// Field case B5 on a card, in half precision with its loss scale.
TEST_F(ValidationTest, GpuFallingBackToTilesLeavesTrainingAsItWas) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA card";
  const std::filesystem::path script = folder_.write("large.vpy", waves_of(2048, 2048));
  const torch::Device card(torch::kCUDA, 0);
  apply_determinism(true);
  Config config = config_of_training("48");
  config.precision.amp = "fp16";
  const std::vector<Snapshot> alone = train(config, card, nullptr);

  const std::unique_ptr<Validator> validator =
      make_validator({{"large", training_pair(Script::open(script, {}), 2), 0, 1}}, network_spec(config), {}, card);
  at::cuda::clearCublasWorkspaces();  // torch keeps one for each thread and stream of the tests before
  c10::cuda::CUDACachingAllocator::emptyCache();
  std::size_t free = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  const auto stats = [] { return c10::cuda::CUDACachingAllocator::getDeviceStats(0); };
  constexpr std::int64_t kLeftMiB = 400;  // 48 features of a whole frame take 192, twice in a convolution
  const std::int64_t usable = static_cast<std::int64_t>(free) + stats().reserved_bytes[0].current;
  config.memory.reserve_mb = static_cast<int>((usable >> 20) - kLeftMiB);
  const std::int64_t failed_before = stats().num_ooms;
  const std::vector<Snapshot> validated = train(config, card, validator.get());
  EXPECT_GT(stats().num_ooms, failed_before);
  apply_determinism(false);
  expect_same_state(validated, alone);
}

}  // namespace
}  // namespace reelgrad
