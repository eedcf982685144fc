#include "reelgrad/train/step.h"

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>

#include <cmath>

#include "reelgrad/base/error.h"
#include "reelgrad/train/loss.h"
#include "reelgrad/train/schedule.h"
#include "reelgrad/train/test_support.h"

namespace reelgrad {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// --- Loss ---

TEST(Loss, IsItsFormula) {
  const torch::Tensor a = torch::tensor({0.0, 0.5, 1.0, 0.25}).reshape({1, 1, 2, 2});
  const torch::Tensor b = torch::tensor({0.5, 0.5, 0.0, 0.0}).reshape({1, 1, 2, 2});
  EXPECT_NEAR(compute_loss({.l1 = 1, .charbonnier = 0}, a, b).item<double>(), 1.75 / 4, 1e-12);
  const double eps = 0.1;
  double expected = 0;
  for (const double d : {0.5, 0.0, 1.0, 0.25}) expected += std::sqrt(d * d + eps * eps) / 4;
  EXPECT_NEAR(compute_loss({.charbonnier_eps = eps}, a, b).item<double>(), expected, 1e-7);
}

TEST(Loss, OfAHalfPredictionIsFloat32) {
  const torch::Tensor prediction = torch::full({1, 1, 64, 64}, 0.5, torch::kBFloat16);
  const torch::Tensor loss = compute_loss(LossConfig{}, prediction, torch::full({1, 1, 64, 64}, 0.5));
  EXPECT_EQ(loss.scalar_type(), torch::kFloat32);
  EXPECT_NEAR(loss.item<double>(), 1e-6, 1e-9);  // eps^2 = 1e-12 is lost in a half type
}

TEST(Loss, OfDifferentShapesIsRefused) {
  EXPECT_THROW(compute_loss(LossConfig{}, torch::zeros({1, 3, 4, 4}), torch::zeros({1, 1, 4, 4})), Error);
}

// --- Schedule ---

TEST(Schedule, WarmUpRisesToTheFullRate) {
  const Schedule schedule({.name = "constant", .warmup_steps = 4}, 0.8, 100);
  EXPECT_DOUBLE_EQ(schedule.at(0), 0.2);
  EXPECT_DOUBLE_EQ(schedule.at(3), 0.8);
  EXPECT_DOUBLE_EQ(schedule.at(99), 0.8);
}

TEST(Schedule, MultistepFallsAtItsMilestones) {
  const Schedule schedule({.name = "multistep", .milestones = {10, 20}, .gamma = 0.5}, 1, 100);
  EXPECT_DOUBLE_EQ(schedule.at(9), 1);
  EXPECT_DOUBLE_EQ(schedule.at(10), 0.5);
  EXPECT_DOUBLE_EQ(schedule.at(20), 0.25);
}

TEST(Schedule, CosineEndsAtItsMinimum) {
  const Schedule schedule({.name = "cosine", .min_lr = 0.1}, 1, 100);
  EXPECT_DOUBLE_EQ(schedule.at(0), 1);
  EXPECT_DOUBLE_EQ(schedule.at(50), 0.55);
  EXPECT_DOUBLE_EQ(schedule.at(100), 0.1);
  EXPECT_DOUBLE_EQ(schedule.at(150), 0.1);
}

// --- Mixed precision ---

TEST(Precision, IsResolvedForTheDevice) {
  EXPECT_EQ(resolve_precision("off", torch::kCPU), Precision::fp32);
  EXPECT_NE(resolve_precision("auto", torch::kCPU), Precision::fp16);
  EXPECT_EQ(resolve_precision("bf16", torch::kCPU), Precision::bf16);
  try {
    resolve_precision("fp16", torch::kCPU);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("precision.amp"), HasSubstr("allowed: auto, off, bf16")));
  }
}

TEST(AutocastGuard, PutsEverythingBack) {
  const auto dtype_of_a_convolution = [] {
    return at::conv2d(torch::ones({1, 1, 3, 3}), torch::ones({1, 1, 3, 3})).scalar_type();
  };
  {
    const AutocastGuard outer(torch::kCPU, Precision::bf16);
    EXPECT_EQ(dtype_of_a_convolution(), torch::kBFloat16);
    {
      const AutocastGuard inner(torch::kCPU, Precision::fp32);
      EXPECT_EQ(dtype_of_a_convolution(), torch::kFloat32);
    }
    EXPECT_EQ(dtype_of_a_convolution(), torch::kBFloat16);
  }
  EXPECT_EQ(dtype_of_a_convolution(), torch::kFloat32);
  EXPECT_FALSE(at::autocast::is_autocast_enabled(torch::kCPU));
}

TEST(MixedPrecision, CompactIsCloseToFloat32) {
  const auto network = test::small_network(1);
  const torch::NoGradGuard no_grad;
  const torch::Tensor input = torch::rand({1, 3, 12, 12});
  const torch::Tensor full = network->forward(input);
  const AutocastGuard autocast(torch::kCPU, Precision::bf16);
  EXPECT_LE((network->forward(input).to(torch::kFloat32) - full).abs().max().item<double>(), 1e-2);
}

TEST(MixedPrecision, PixelShuffleOrderIsThatOfTheLiterature) {
  const torch::Tensor input = torch::arange(16).reshape({1, 4, 2, 2});
  const torch::Tensor expected =
      torch::tensor({0, 4, 1, 5, 8, 12, 9, 13, 2, 6, 3, 7, 10, 14, 11, 15}, torch::kInt64).reshape({1, 1, 4, 4});
  EXPECT_TRUE(torch::equal(at::pixel_shuffle(input, 2), expected));
  EXPECT_TRUE(torch::equal(at::pixel_shuffle(input.contiguous(torch::MemoryFormat::ChannelsLast), 2), expected));
}

// --- One step ---

// Its output is one parameter p, in half precision, at 100 places: with an L1 loss against 0 every place has the
// gradient 0.01 * scale, in half: it overflows above 65504.
class HalfParameter : public Network {
 public:
  HalfParameter() { p_ = register_parameter("p", torch::ones({1})); }
  torch::Tensor forward(torch::Tensor input) override { return (input * 0 + p_).to(torch::kFloat16); }
  NetworkInfo info() const override { return {.scale = 1, .in_channels = 1, .out_channels = 1}; }
  double value() const { return p_.item<double>(); }

 private:
  torch::Tensor p_;
};

struct SkipRun {
  double parameter = 0, average = 0;
  GradScaler::Counters counters;
  double optimizer_updates = 0;
};

SkipRun run_half_parameter(torch::Device device, double initial_scale, int iterations) {
  Config config = test::small_config();
  config.loss = {.l1 = 1, .charbonnier = 0};
  config.data.batch = 1;
  HalfParameter network;
  network.to(device);
  Optimizer optimizer(config.optimizer, network);
  Ema ema(0.5, network);
  GradScaler scaler(device, {.initial_scale = initial_scale});
  EagerStep step(config, Precision::fp32, false, network, optimizer, &ema, &scaler);
  const torch::Tensor rates = torch::linspace(0.1, 0.01, 10).to(device);
  const torch::Tensor zeros = torch::zeros({1, 1, 10, 10}, device);
  for (int i = 0; i < iterations; ++i) {
    step.run([&](int, int) { return Batch{zeros, zeros}; }, rates.index_select(0, scaler.updates()));
  }
  return {network.value(), ema.state().front().second.item<double>(), scaler.counters(),
          optimizer.state().front().second.item<double>()};
}

void expect_skips_do_not_count(torch::Device device) {
  const SkipRun skipping = run_half_parameter(device, 0x1p24, 10);
  EXPECT_EQ(skipping.counters.skipped, 2);
  EXPECT_EQ(skipping.counters.updates, 8);
  EXPECT_EQ(skipping.counters.scale, 0x1p22);
  EXPECT_EQ(skipping.optimizer_updates, 8);
  // Ten iterations of which two were skipped are eight: learning rates, optimizer and average alike.
  const SkipRun eight = run_half_parameter(device, 0x1p22, 8);
  EXPECT_EQ(eight.counters.skipped, 0);
  EXPECT_EQ(skipping.parameter, eight.parameter);
  EXPECT_EQ(skipping.average, eight.average);
}

TEST(SkippedStep, CountsForNothing) {
  expect_skips_do_not_count(torch::kCPU);
}

TEST(SkippedStepGpu, CountsForNothing) {
  if (!test::has_card()) GTEST_SKIP() << "no CUDA card";
  expect_skips_do_not_count({torch::kCUDA, 0});
}

TEST(EagerStep, MicroBatchesAddUpToTheWholeBatch) {
  const auto run = [](int batch, int accumulate) {
    Config config = test::small_config();
    config.data.batch = batch;
    config.optimizer.accumulate = accumulate;
    const auto network = test::small_network(1, torch::kFloat64);
    auto batches = test::smooth_batches(config);
    Optimizer optimizer(config.optimizer, *network);
    EagerStep step(config, Precision::fp32, false, *network, optimizer, nullptr, nullptr);
    const torch::Tensor loss = step.run([&](int first, int count) { return batches.next(0, first, count); }, 0.1);
    EXPECT_FALSE(loss.requires_grad());
    return std::pair(loss.item<double>(), network->parameters().front().detach().clone());
  };
  const auto [whole_loss, whole] = run(6, 1);
  const auto [split_loss, split] = run(2, 3);
  EXPECT_NEAR(split_loss, whole_loss, 1e-12);
  EXPECT_LE((split - whole).abs().max().item<double>(), 1e-9);
}

TEST(ClipByNorm, ScalesOnlyWhatIsTooLong) {
  const auto clipped = [](double max_norm) {
    std::vector<torch::Tensor> gradients{torch::full({4}, 3.0), torch::full({1}, 8.0)};  // joint norm 10
    clip_by_norm(gradients, max_norm);
    return gradients[1].item<double>();
  };
  EXPECT_NEAR(clipped(5), 4, 1e-5);
  EXPECT_EQ(clipped(20), 8);
}

TEST(Optimizer, ResetsNothingWhenItsStateIsLoaded) {
  const Config config = test::small_config();
  const auto network = test::small_network(1);
  Optimizer optimizer(config.optimizer, *network);
  for (torch::Tensor& parameter : network->parameters()) parameter.mutable_grad() = torch::ones_like(parameter);
  optimizer.step(1e-3);
  Optimizer other(config.optimizer, *network);
  other.load_state(optimizer.state());
  test::expect_bit_equal(other.state(), optimizer.state());
  EXPECT_THROW(other.load_state({}), Error);
}

TEST(Ema, SwapsItsWeightsInAndTheRawOnesBack) {
  const auto network = test::small_network(1);
  Ema ema(0.5, *network);
  {
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& parameter : network->parameters()) parameter.add_(1);
  }
  ema.update();
  const torch::Tensor parameter = network->parameters().front();
  const torch::Tensor raw = parameter.detach().clone();
  const void* storage = parameter.const_data_ptr();
  {
    const Ema::SwappedIn averages(ema);
    EXPECT_TRUE(torch::equal(parameter, ema.state().front().second));
    EXPECT_NEAR((raw - parameter).max().item<double>(), 0.5, 1e-6);
  }
  EXPECT_TRUE(torch::equal(parameter, raw));
  EXPECT_EQ(parameter.const_data_ptr(), storage);
}

}  // namespace
}  // namespace reelgrad
