#include "reelgrad/train/step.h"

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>

#include <cmath>

#include "reelgrad/base/error.h"
#include "reelgrad/train/loss.h"
#include "reelgrad/train/schedule.h"
#include "reelgrad/train/test_support.h"
#include "reelgrad/train/updater.h"

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

TEST(Schedule, LinearEndsAtItsMinimum) {
  const Schedule schedule({.name = "linear", .warmup_steps = 20, .min_lr = 0.2}, 1, 100);
  EXPECT_DOUBLE_EQ(schedule.at(9), 0.5);
  EXPECT_DOUBLE_EQ(schedule.at(60), 0.6);
  EXPECT_DOUBLE_EQ(schedule.at(100), 0.2);
  EXPECT_DOUBLE_EQ(schedule.at(500), 0.2);
}

TEST(Schedule, OnecycleRisesAndFalls) {
  const Schedule schedule({.name = "onecycle", .rise = 0.11, .start_divisor = 10, .end_divisor = 100}, 1, 100);
  EXPECT_DOUBLE_EQ(schedule.at(0), 0.1);
  EXPECT_DOUBLE_EQ(schedule.at(5), 0.55);
  EXPECT_DOUBLE_EQ(schedule.at(10), 1);
  EXPECT_DOUBLE_EQ(schedule.at(99), 0.001);
  EXPECT_DOUBLE_EQ(schedule.at(100), 0.001);
}

TEST(Schedule, OnecycleWithoutARiseStartsAtTheTop) {
  const Schedule schedule({.name = "onecycle", .rise = 0.01}, 1, 100);
  EXPECT_DOUBLE_EQ(schedule.at(0), 1);
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
  UpdateCounters counters;
};

SkipRun run_half_parameter(torch::Device device, double initial_scale, int iterations) {
  Config config = test::small_config();
  config.loss = {.l1 = 1, .charbonnier = 0};
  config.data.batch = 1;
  HalfParameter network;
  network.to(device);
  Updater updater({.optimizer = config.optimizer,
                   .schedule = {.name = "linear", .min_lr = config.optimizer.lr / 10},
                   .ema = {.decay = 0.5},
                   .steps = 10,
                   .loss_scaling = true,
                   .initial_scale = initial_scale},
                  network);
  EagerStep step(config, Precision::fp32, false, network, updater);
  const torch::Tensor zeros = torch::zeros({1, 1, 10, 10}, device);
  for (int i = 0; i < iterations; ++i) step.run([&](int, int) { return Batch{zeros, zeros}; });
  return {network.value(), updater.evaluation_weights().front().second.item<double>(),
          Updater::read(updater.counters().cpu())};
}

// Field case C2.
void expect_skips_do_not_count(torch::Device device) {
  const SkipRun skipping = run_half_parameter(device, 0x1p24, 10);
  EXPECT_EQ(skipping.counters.skipped, 2);
  EXPECT_EQ(skipping.counters.updates, 8);
  EXPECT_EQ(skipping.counters.scale, 0x1p22);
  // Ten iterations of which two were skipped are eight: learning rates, optimizer and average alike.
  const SkipRun eight = run_half_parameter(device, 0x1p22, 8);
  EXPECT_EQ(eight.counters.skipped, 0);
  EXPECT_EQ(skipping.counters.learning_rate, eight.counters.learning_rate);
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
    Updater updater({.optimizer = config.optimizer, .steps = 1}, *network);
    EagerStep step(config, Precision::fp32, false, *network, updater);
    const torch::Tensor loss = step.run([&](int first, int count) { return batches.next(0, first, count); });
    EXPECT_FALSE(loss.requires_grad());
    return std::pair(loss.item<double>(), network->parameters().front().detach().clone());
  };
  const auto [whole_loss, whole] = run(6, 1);
  const auto [split_loss, split] = run(2, 3);
  EXPECT_NEAR(split_loss, whole_loss, 1e-12);
  EXPECT_LE((split - whole).abs().max().item<double>(), 1e-9);
}

}  // namespace
}  // namespace reelgrad
