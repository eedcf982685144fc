#include "reelgrad/restore/validation.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <filesystem>
#include <sstream>

#include "reelgrad/base/error.h"
#include "reelgrad/base/process.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/restore/test_clips.h"
#include "reelgrad/restore/test_networks.h"

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

// Field case B5: frames much larger than the crops of training, on a card with little memory left.
TEST_F(ValidationTest, GpuWithLittleMemoryMeasuresTheSameByTiles) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA card";
  const std::filesystem::path script = folder_.write("large.vpy", std::string(kWavesScript) + R"(
target = target.resize.Bicubic(2048, 2048)
target.set_output(0)
target.resize.Bicubic(1024, 1024).set_output(1)
)");
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

}  // namespace
}  // namespace reelgrad
