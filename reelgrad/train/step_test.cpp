#include "reelgrad/train/step.h"

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>

#include "reelgrad/base/error.h"
#include "reelgrad/train/schedule.h"
#include "reelgrad/train/test_support.h"
#include "reelgrad/train/updater.h"

namespace reelgrad {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

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
  config.data.color = "gray";
  config.run.steps = 10;
  config.schedule = {.name = "linear", .min_lr = config.optimizer.lr / 10};
  config.ema = {.decay = 0.5};
  const auto network = std::make_shared<HalfParameter>();
  // fp16 for its loss scale; without autocast on the CPU, which the network does not need.
  test::StepSetup setup(config, network, device, Precision::fp16, initial_scale);
  const torch::Tensor zeros = torch::zeros({1, 1, 10, 10}, device);
  test::FixedBatches batches(zeros, zeros, 1);
  EagerStep step(setup.ops, batches, MicroBatches(1, 1));
  for (int i = 0; i < iterations; ++i) step.run(i);
  return {network->value(), setup.updater.evaluation_weights().front().second.item<double>(),
          Updater::read(setup.updater.counters().cpu())};
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

TEST(MicroBatches, AreAsEqualAsPossible) {
  const MicroBatches parts(16, 3);
  EXPECT_EQ(parts.count(0) + parts.count(1) + parts.count(2), 16);
  for (int i = 0; i < 3; ++i) EXPECT_THAT(parts.count(i), testing::AnyOf(5, 6));
  EXPECT_EQ(parts.first(1), parts.count(0));
}

TEST(EagerStep, MicroBatchesAddUpToTheWholeBatch) {
  const auto run = [](int parts) {
    Config config = test::small_config();
    config.data.batch = 6;
    config.run.steps = 1;
    test::StepSetup setup(config, test::small_network(1, torch::kFloat64), torch::kCPU);
    auto batches = test::smooth_batches(config);
    EagerStep(setup.ops, batches, MicroBatches(6, parts)).run(0);
    return std::pair(LossMeter::read(setup.meter.state()).means.front(),
                     setup.network->parameters().front().detach().clone());
  };
  const auto [whole_loss, whole] = run(1);
  for (const int parts : {3, 4}) {
    const auto [split_loss, split] = run(parts);
    EXPECT_NEAR(split_loss, whole_loss, 1e-12);
    EXPECT_LE((split - whole).abs().max().item<double>(), 1e-9);
  }
}

// Two networks in one step, the second learning what the first leaves over, are the two loops written out.
TEST(EagerStep, TrainsTwoNetworksWithTheirOwnOptimizers) {
  const auto l1 = [](const torch::Tensor& a, const torch::Tensor& b) {
    const torch::Tensor loss = (a - b).abs().mean();
    return LossValue{loss, loss.detach().reshape({1})};
  };
  Config config = test::small_config();
  auto batches = test::smooth_batches(config);
  const auto first = test::small_network(1, torch::kFloat64), second = test::small_network(2, torch::kFloat64);
  Updater adam({.optimizer = {.name = "adam", .lr = 1e-3}, .ema = {.decay = 0}, .steps = 8}, *first);
  Updater sgd({.optimizer = {.name = "sgd", .lr = 1e-2}, .ema = {.decay = 0}, .steps = 8}, *second);
  const auto rest = [&](const Batch& batch) {
    return batch.target.to(torch::kFloat64) - first->forward(batch.input.to(torch::kFloat64)).detach();
  };
  LossMeter meter(2, torch::kCPU), meter_of_second(2, torch::kCPU);
  StepOps ops(
      {{whole_backward([&](const Batch& b) {
          return l1(first->forward(b.input.to(torch::kFloat64)), b.target.to(torch::kFloat64));
        }),
        first.get(), &adam, &meter},
       {whole_backward([&](const Batch& b) { return l1(second->forward(b.input.to(torch::kFloat64)), rest(b)); }),
        second.get(), &sgd, &meter_of_second}},
      2);
  EagerStep step(ops, batches, MicroBatches(2, 2));
  for (int i = 0; i < 8; ++i) step.run(i);

  const auto a = test::small_network(1, torch::kFloat64), b = test::small_network(2, torch::kFloat64);
  torch::optim::Adam adam_of_torch(a->parameters(), torch::optim::AdamOptions(1e-3).betas({0.9, 0.99}));
  torch::optim::SGD sgd_of_torch(b->parameters(), torch::optim::SGDOptions(1e-2).momentum(0.9));
  double losses = 0;
  for (int i = 0; i < 8; ++i) {
    const Batch batch = batches.next(i, 0, 2);
    const torch::Tensor input = batch.input.to(torch::kFloat64), target = batch.target.to(torch::kFloat64);
    adam_of_torch.zero_grad();
    sgd_of_torch.zero_grad();
    const torch::Tensor prediction = a->forward(input);
    (prediction - target).abs().mean().backward();
    const torch::Tensor loss = (b->forward(input) - (target - prediction.detach())).abs().mean();
    loss.backward();
    losses += loss.item<double>();
    adam_of_torch.step();
    sgd_of_torch.step();
  }
  for (const auto& [ours, torchs] : {std::pair{first, a}, std::pair{second, b}})
    for (std::size_t i = 0; i < ours->parameters().size(); ++i)
      EXPECT_LE((ours->parameters()[i] - torchs->parameters()[i]).abs().max().item<double>(), 1e-10);
  EXPECT_NEAR(LossMeter::read(meter_of_second.state()).means[0], losses / 8, 1e-10);
}

TEST(LossMeter, LeavesOutStepsThatAreNotFinite) {
  LossMeter meter(2, torch::kCPU);
  const auto add = [&](double total, double term) { meter.add(torch::tensor({total, term}, torch::kFloat64)); };
  add(1, 4);
  add(std::nan(""), 7);
  add(3, 2);
  const LossMeter::Reading reading = LossMeter::read(meter.state());
  EXPECT_THAT(reading.means, testing::ElementsAre(2, 3));
  EXPECT_EQ(reading.steps, 3);
  EXPECT_EQ(reading.first_bad, 1);
  EXPECT_TRUE(std::isnan(reading.first_bad_value));
  EXPECT_EQ(reading.last_value, 3);
  meter.clear();
  EXPECT_EQ(LossMeter::read(meter.state()).first_bad, -1);
}

}  // namespace
}  // namespace reelgrad
