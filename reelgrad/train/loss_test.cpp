#include "reelgrad/train/loss.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "reelgrad/base/error.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/nn/weights.h"
#include "reelgrad/train/amp.h"
#include "reelgrad/train/loss_testing.h"
#include "reelgrad/train/network_loss.h"
#include "reelgrad/train/test_support.h"

namespace reelgrad {
namespace {

using test::evaluate;
using test::Evaluated;
using test::expect_fft_in_float32;
using test::loss_cases;
using test::LossCase;
using test::noise_pair;
using test::only;
using test::PicturePair;
using test::pictures_of_cases;
using test::uniform;
using test::value_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// --- By hand ---

TEST(Loss, PixelLossesAreTheirFormulas) {
  const torch::Tensor a = torch::tensor({0.0, 0.5, 1.0, 0.25}, torch::kFloat64).reshape({1, 1, 2, 2});
  const torch::Tensor b = torch::tensor({0.5, 0.5, 0.0, 0.0}, torch::kFloat64).reshape({1, 1, 2, 2});
  EXPECT_NEAR(value_of({.l1 = 1, .charbonnier = 0}, a, b), 1.75 / 4, 1e-15);
  EXPECT_NEAR(value_of({.mse = 1, .charbonnier = 0}, a, b), 1.3125 / 4, 1e-15);
  EXPECT_NEAR(value_of({.charbonnier = 0, .huber = 1, .huber_delta = 0.5}, a, b),
              (0.125 + 0 + 0.5 * (1 - 0.25) + 0.03125) / 4, 1e-15);
  double expected = 0;
  for (const double d : {0.5, 0.0, 1.0, 0.25}) expected += std::sqrt(d * d + 0.01) / 4;
  EXPECT_NEAR(value_of({.charbonnier_eps = 0.1}, a, b), expected, 1e-15);
}

TEST(Loss, LumaAndChromaWeighTheirPlanes) {
  const LossConfig config = only([](LossConfig& c) { c.l1 = 1, c.luma_weight = 4, c.chroma_weight = 0.5; });
  const torch::Tensor zeros = torch::zeros({1, 3, 2, 2}, torch::kFloat64);
  // Gray has luma alone; blue: Y' 0.0722, Cb 0.5, Cr -0.0722 / 1.5748.
  EXPECT_NEAR(value_of(config, torch::ones_like(zeros), zeros), 4.0 / 3, 1e-14);
  const torch::Tensor blue = torch::tensor({0, 0, 1}, torch::kFloat64).view({1, 3, 1, 1}).expand({1, 3, 2, 2});
  EXPECT_NEAR(value_of(config, blue, zeros), (4 * 0.0722 + 0.5 * (0.5 + 0.0722 / 1.5748)) / 3, 1e-14);
  EXPECT_NEAR(value_of(config, blue, zeros, NetworkColor::yuv444), 0.5 / 3, 1e-14);
}

TEST(Loss, OneMinusSsimOfFlatPicturesIsTheirLuminances) {
  const LossConfig config = only([](LossConfig& c) { c.ssim = 1; });
  const torch::Tensor a = torch::full({1, 3, 12, 12}, 0.25, torch::kFloat64), b = torch::full_like(a, 0.75);
  EXPECT_NEAR(value_of(config, a, b), 1 - (2 * 0.25 * 0.75 + 1e-4) / (0.0625 + 0.5625 + 1e-4), 1e-12);
  EXPECT_NEAR(value_of(config, a, a), 0, 1e-12);
}

TEST(Loss, SpectrumOfOneBrightPixelIsFlat) {
  const LossConfig config = only([](LossConfig& c) { c.fft = 1; });
  const torch::Tensor zeros = torch::zeros({1, 1, 4, 4}, torch::kFloat64);
  torch::Tensor one = zeros.clone();
  one.index_put_({0, 0, 0, 0}, 1);  // every coefficient is (1, 0), over 4 by "ortho"
  EXPECT_NEAR(value_of(config, one, zeros), 0.25 / 2, 1e-15);
}

TEST(Loss, EdgesOfARampAndOfOneBrightPixel) {
  const torch::Tensor zeros = torch::zeros({1, 1, 5, 5}, torch::kFloat64);
  const torch::Tensor ramp = (torch::arange(5, torch::kFloat64) * 0.125).expand({1, 1, 5, 5});
  torch::Tensor dot = zeros.clone();
  dot.index_put_({0, 0, 2, 2}, 1);
  const LossConfig sobel = only([](LossConfig& c) { c.edge = 1; });
  EXPECT_NEAR(value_of(sobel, ramp, zeros), 0.125 / 2, 1e-15);  // all of it along x
  EXPECT_NEAR(value_of(sobel, dot, zeros), 8.0 / 8 / 9, 1e-15);
  const LossConfig laplacian = only([](LossConfig& c) { c.edge = 1, c.edge_operator = "laplacian"; });
  EXPECT_NEAR(value_of(laplacian, ramp, zeros), 0, 1e-15);
  EXPECT_NEAR(value_of(laplacian, dot, zeros), 8.0 / 9, 1e-15);
}

TEST(Loss, TemporalSeesFlickerAndNoConstantError) {
  const LossConfig config = only([](LossConfig& c) { c.temporal = 1; });
  const torch::Tensor target = uniform({2, 2, 3, 4, 4}, 1);
  EXPECT_NEAR(value_of(config, target + 0.25, target), 0, 1e-15);
  torch::Tensor flicker = target.clone();
  flicker.select(1, 1) += 0.25;
  EXPECT_NEAR(value_of(config, flicker, target), 0.25, 1e-15);
}

// Gives the middle frame of a window.
class MiddleOfThree : public Network {
 public:
  MiddleOfThree() { gain_ = register_parameter("gain", torch::ones({1}, torch::kFloat64)); }
  torch::Tensor forward(torch::Tensor input) override {
    seen = input;
    return gain_ * input.select(1, 1);
  }
  NetworkInfo info() const override { return {.scale = 1, .in_channels = 1, .out_channels = 1, .window = 3}; }
  torch::Tensor seen;

 private:
  torch::Tensor gain_;
};

TEST(NetworkLoss, RunsTheNetworkOnEveryWindowOfASample) {
  Config config;
  config.data.window = 3;
  config.loss = {.l1 = 1, .charbonnier = 0, .temporal = 0.5};
  MiddleOfThree network;
  // Frame t of the samples is t and 100 + t. The middle frames are 1 and 2; the targets of the second are 2 more.
  const torch::Tensor frames = (torch::arange(4, torch::kFloat64) + torch::tensor({0, 100}).view({2, 1}))
                                   .view({2, 4, 1, 1, 1})
                                   .expand({2, 4, 1, 4, 4});
  torch::Tensor targets = frames.narrow(1, 1, 2).clone();
  targets.select(1, 1) += 2;
  const LossValue value = NetworkLoss(config, network, Precision::fp32)({frames, targets});
  EXPECT_EQ(network.seen.sizes(), torch::IntArrayRef({4, 3, 1, 4, 4}));
  const torch::Tensor windows = torch::tensor({0, 1, 2, 1, 2, 3, 100, 101, 102, 101, 102, 103}, torch::kFloat64);
  EXPECT_TRUE(torch::equal(network.seen.select(-1, 0).select(-1, 0).flatten(), windows));
  EXPECT_TRUE(torch::allclose(value.terms, torch::tensor({1.0, 0.5 * 2}, torch::kFloat64)));

  // Three windows of one sample, for a discriminator of three frames.
  config.loss = {.l1 = 1, .charbonnier = 0};
  config.loss.gan = 1;
  config.discriminator.frames = 3;
  const torch::Tensor five = torch::arange(5, torch::kFloat64).view({1, 5, 1, 1, 1}).expand({1, 5, 1, 4, 4});
  const Batch batch{five, five.narrow(1, 1, 3) + 0.5};
  EXPECT_NEAR(NetworkLoss(config, network, Precision::fp32)(batch).total.item<double>(), 0.5, 1e-12);
  EXPECT_TRUE(torch::equal(network.seen.select(-1, 0).select(-1, 0).flatten(),
                           torch::tensor({0, 1, 2, 1, 2, 3, 2, 3, 4}, torch::kFloat64)));
}

// --- Weights that change with the steps ---

TEST(Loss, AWeightBeginsAfterItsStartAndRises) {
  Loss loss(
      only([](LossConfig& c) { c.l1 = 1, c.mse = 2, c.mse.start = 3, c.mse.ramp = 4, c.huber = 5, c.huber.start = 2; }),
      NetworkColor::rgb);
  const torch::Tensor done = torch::zeros({}, torch::kFloat64), zeros = torch::zeros({1, 3, 4, 4}, torch::kFloat64);
  EXPECT_THROW(loss(zeros + 1, zeros), Error);
  loss.set_done_steps(done);
  const std::vector<double> mse{0, 0, 0, 0.5, 1, 1.5, 2, 2}, huber{0, 0, 2.5, 2.5, 2.5, 2.5, 2.5, 2.5};
  for (std::size_t step = 0; step < mse.size(); ++step) {
    torch::Tensor(done).fill_(static_cast<double>(step));  // the loss reads it anew
    const torch::Tensor expected = torch::tensor({1.0, mse[step], huber[step]}, torch::kFloat64);
    EXPECT_TRUE(torch::equal(loss(zeros + 1, zeros).terms, expected)) << step;
  }
}

TEST(Loss, IsToldOfTheStepsThatTheUpdaterDid) {
  Config config = test::small_config();
  config.loss = {.l1 = 1, .mse = 1, .charbonnier = 0};
  config.loss.mse.start = 2;
  test::StepSetup setup(config, test::small_network(1), torch::kCPU);
  test::FixedBatches batches = test::smooth_batches(config);
  const auto weighted_mse = [&] { return setup.loss(batches.next(0, 0, 2)).terms[1].item<double>(); };
  EagerStep step(setup.ops, batches, {setup.samples(), 1});
  step.run(0);
  EXPECT_EQ(weighted_mse(), 0);
  step.run(1);
  EXPECT_GT(weighted_mse(), 0);
}

// --- Files of networks ---

TEST(FeatureLoss, TakesYuvAndGrayForRgb) {
  const torch::Tensor rgb = uniform({2, 3, 4, 5}, 1);
  const torch::Tensor y = 0.2126 * rgb.select(1, 0) + 0.7152 * rgb.select(1, 1) + 0.0722 * rgb.select(1, 2);
  const torch::Tensor cb = (rgb.select(1, 2) - y) / 1.8556 + 0.5, cr = (rgb.select(1, 0) - y) / 1.5748 + 0.5;
  EXPECT_TRUE(torch::allclose(as_rgb(torch::stack({y, cb, cr}, 1), NetworkColor::yuv444), rgb, 0, 1e-14));
  EXPECT_TRUE(torch::equal(as_rgb(y.unsqueeze(1), NetworkColor::gray), torch::stack({y, y, y}, 1)));
  EXPECT_TRUE(torch::equal(as_rgb(rgb, NetworkColor::rgb), rgb));
}

TEST(FeatureLoss, RefusesAFileOfAnotherNetwork) {
  const test::TemporaryFolder folder;
  const auto refusal = [&](const NamedTensors& tensors) -> std::string {
    write_safetensors(folder / "net.safetensors", tensors);
    try {
      Loss(only([&](LossConfig& c) { c.perceptual = 1, c.perceptual.weights = folder / "net.safetensors"; }),
           NetworkColor::rgb);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::failed);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal({{"conv.weight", torch::zeros({1})}}),
              HasSubstr("net.safetensors is not the network of torchvision's vgg19-dcbb9e9d.pth: features.0.weight is "
                        "missing"));
  EXPECT_THAT(refusal({{"features.0.weight", torch::zeros({64, 1, 3, 3})}}),
              HasSubstr("features.0.weight is [64, 1, 3, 3], needed: [64, 3, 3, 3]"));
}

TEST(FeatureLoss, FindsFilesOfInstalledPackages) {
  EXPECT_EQ(file_of_python_package("lpips/weights/v0.1/vgg.pth").filename(), "vgg.pth");
  EXPECT_EQ(file_of_python_package("DISTS_pytorch/no_such_file.pt", "weights.pt").filename(), "weights.pt");
  EXPECT_EQ(file_of_python_package("no_such_package/file"), "");
}

// --- Where there is no peer: against differences ---

void expect_gradient_of_differences(const Loss& loss, const PicturePair& pictures) {
  const torch::Tensor direction = uniform(pictures.prediction.sizes(), 3) - 0.5;
  const auto along = [&](double step) {
    return loss(pictures.prediction + step * direction, pictures.target).total.item<double>();
  };
  constexpr double kStep = 1e-5;
  const double expected = (along(kStep) - along(-kStep)) / (2 * kStep);
  const double gradient = (evaluate(loss, pictures).gradient * direction).sum().item<double>();
  EXPECT_NEAR(gradient, expected, 1e-6 * std::abs(expected));
}

TEST(Loss, MsSsimLeavesOutOddRowsAndColumns) {
  const Loss loss(only([](LossConfig& c) { c.ms_ssim = 1; }), NetworkColor::rgb);
  expect_gradient_of_differences(loss, noise_pair({1, 1, 177, 191}));
}

// Fine detail of the wrong sign has a negative factor, whose power is none, on the finest scale; where 2x2 pixels are
// averaged it is gone.
TEST(Loss, AScaleOfMsSsimAtItsEndLeavesTheOthersTheirGradient) {
  const Loss loss(only([](LossConfig& c) { c.ms_ssim = 1; }), NetworkColor::rgb);
  const torch::Tensor coarse = 0.2 * uniform({1, 1, 11, 11}, 1).repeat_interleave(16, 2).repeat_interleave(16, 3);
  const torch::Tensor signs = torch::tensor({1, -1, -1, 1}, torch::kFloat64).view({2, 2}).repeat({88, 88});
  const torch::Tensor detail =
      signs * (0.2 + 0.1 * uniform({1, 1, 88, 88}, 2).repeat_interleave(2, 2).repeat_interleave(2, 3));
  EXPECT_NEAR(evaluate(loss, {coarse - detail, coarse + detail}).total, 1 - std::pow(1e-4, 0.0448), 1e-9);
  const torch::Tensor brighter = 1.1 * coarse - detail;
  expect_gradient_of_differences(loss, {brighter, coarse + detail});
  EXPECT_GT(evaluate(loss, {brighter, coarse + detail}).gradient.abs().max().item<double>(), 0);
}

TEST(Loss, EveryTermHasTheGradientOfItsDifferences) {
  for (const LossCase& made : loss_cases()) {
    const LossConfig& c = made.config;
    if (!c.mse.on() && !c.charbonnier.on() && !c.huber.on() && !c.ssim.on()) continue;
    if (c.l1.on()) continue;  // |x| has kinks
    SCOPED_TRACE(made.name);
    expect_gradient_of_differences(Loss(made.config, made.color), pictures_of_cases().at(made.pictures));
  }
}

// --- Types, names, refusals ---

TEST(Loss, OfAHalfPredictionIsFloat32) {
  const torch::Tensor prediction = torch::full({1, 1, 64, 64}, 0.5, torch::kBFloat16);
  const LossValue loss = Loss({}, NetworkColor::gray)(prediction, torch::full({1, 1, 64, 64}, 0.5));
  EXPECT_EQ(loss.total.scalar_type(), torch::kFloat32);
  EXPECT_EQ(loss.terms.scalar_type(), torch::kFloat32);
  EXPECT_NEAR(loss.total.item<double>(), 1e-6, 1e-9);  // eps^2 = 1e-12 is lost in a half type
}

TEST(Loss, TermsAreTheWeightedOnesInOrder) {
  const Loss loss({.l1 = 0.5, .mse = 4, .charbonnier = 0, .edge = 1}, NetworkColor::rgb);
  EXPECT_THAT(loss.names(), ElementsAre("l1", "mse", "edge"));
  const torch::Tensor zeros = torch::zeros({1, 3, 4, 4}, torch::kFloat64);
  const LossValue value = loss((zeros + 0.5).requires_grad_(), zeros);
  EXPECT_TRUE(torch::allclose(value.terms, torch::tensor({0.25, 1.0, 0.0}, torch::kFloat64)));
  EXPECT_FALSE(value.terms.requires_grad());
  EXPECT_TRUE(value.total.requires_grad());
  EXPECT_NEAR(value.total.item<double>(), 1.25, 1e-15);
}

std::string refusal(ErrorKind kind, const LossConfig& config, NetworkColor color, torch::IntArrayRef sizes) {
  try {
    Loss(config, color)(torch::zeros(sizes), torch::zeros(sizes));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    return error.what();
  }
  return "";
}

TEST(Loss, RefusesWhatCannotBe) {
  const auto usage = [](const LossConfig& config, torch::IntArrayRef sizes) {
    return refusal(ErrorKind::usage, config, NetworkColor::rgb, sizes);
  };
  EXPECT_EQ(usage({.ms_ssim = 1}, {1, 3, 175, 200}),
            "loss.ms_ssim: the pictures are 200x175, it needs 176x176 (data.crop_px times model.scale) or more: raise "
            "data.crop_px, or set loss.ms_ssim = 0");
  EXPECT_EQ(usage({.ms_ssim = 1}, {1, 1, 176, 176}), "");
  EXPECT_THAT(usage({.ssim = 1}, {1, 3, 11, 10}), HasSubstr("10x11, it needs 11x11"));
  EXPECT_EQ(usage({.ssim = 1}, {1, 3, 11, 11}), "");
  EXPECT_THAT(refusal(ErrorKind::usage, {.chroma_weight = 0.5}, NetworkColor::gray, {1, 1, 4, 4}),
              AllOf(HasSubstr("loss.luma_weight = 1"), HasSubstr("loss.chroma_weight = 0.5"), HasSubstr("gray")));

  EXPECT_THROW(Loss({}, NetworkColor::rgb)(torch::zeros({1, 3, 4, 4}), torch::zeros({1, 1, 4, 4})), Error);
  EXPECT_THAT(refusal(ErrorKind::failed, {}, NetworkColor::rgb, {3, 4, 4}), HasSubstr("[N, C, H, W]"));
  EXPECT_THAT(refusal(ErrorKind::failed, {.temporal = 1}, NetworkColor::rgb, {2, 3, 4, 4}),
              HasSubstr("[N, F, C, H, W]"));
}

TEST(Loss, SpectraAreFloat32UnderAutocast) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) expect_fft_in_float32(torch::kCPU, precision);
}

}  // namespace
}  // namespace reelgrad
