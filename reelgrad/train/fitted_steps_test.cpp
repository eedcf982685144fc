#include "reelgrad/train/fitted_steps.h"

#include <c10/core/CPUAllocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <map>

#include "reelgrad/base/error.h"
#include "reelgrad/train/test_support.h"

namespace reelgrad {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Passes everything on to torch's allocator but the n-th request, for which memory has run out. CPU only.
class FailingAllocator : public c10::Allocator {
 public:
  FailingAllocator() : inner_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this, kPriority); }
  ~FailingAllocator() override { c10::SetCPUAllocator(inner_, kPriority); }

  // The `count`-th request from now on fails, and those after it do not. 0: none.
  void fail_at(std::int64_t count) { left_ = count; }
  bool has_failed() const { return left_ == 0; }
  c10::DataPtr allocate(std::size_t bytes) override {
    if (left_ > 0 && --left_ == 0) TORCH_CHECK_WITH(OutOfMemoryError, false, "Tried to allocate 1.00 GiB.");
    return inner_->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return inner_->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { inner_->copy_data(to, from, bytes); }

 private:
  static constexpr std::uint8_t kPriority = 1;
  c10::Allocator* inner_;
  std::int64_t left_ = 0;
};

// oneDNN answers a failed allocation by another way to compute.
class WithoutOneDnn {
 public:
  WithoutOneDnn() { at::globalContext().setUserEnabledMkldnn(false); }
  ~WithoutOneDnn() { at::globalContext().setUserEnabledMkldnn(true); }
};

Config config_of(int batch, int accumulate) {
  Config config = test::small_config();
  config.data.batch = batch;
  config.optimizer.accumulate = accumulate;
  config.optimizer.clip_norm = 0.1;
  config.ema.decay = 0.9;
  return config;
}

struct Training {
  Training(const Config& config, BatchSource& batches, std::shared_ptr<Network> network,
           torch::Device device = torch::kCPU)
      : setup(config, std::move(network), device),
        steps(setup.config, *setup.network, setup.loss, setup.ops, batches, device) {}
  test::StepSetup setup;
  FittedSteps steps;
};

// Memory runs out once, at each allocation of a step in turn. Afterwards the run is the one that had begun with twice
// the micro-batches: the same samples, each once, and nothing counted twice.
TEST(FittedSteps, OutOfMemoryAtAnyAllocationOfAStepChangesNothingButThePlan) {
  const WithoutOneDnn plain;
  const Config whole = config_of(4, 1), halves = config_of(2, 2);
  auto batches = test::smooth_batches(whole);
  Training before(whole, batches, test::small_network(1));
  for (std::int64_t step = 0; step < 3; ++step) before.steps.run(step);
  const NamedTensors start = before.setup.state();
  Training split(halves, batches, test::small_network(2));
  split.setup.load(start);
  split.steps.run(3);
  const NamedTensors expected = split.setup.state();

  FailingAllocator allocator;
  std::int64_t failures = 0;
  for (bool failed = true; failed; ++failures) {
    Training training(whole, batches, test::small_network(2));
    training.setup.load(start);
    allocator.fail_at(failures + 1);
    training.steps.run(3);
    failed = allocator.has_failed();
    allocator.fail_at(0);
    if (!failed) break;
    EXPECT_EQ(training.steps.plan().parts, 2);
    test::expect_bit_equal(training.setup.state(), expected);
    ASSERT_FALSE(HasFailure()) << "allocation " << failures + 1;
  }
  EXPECT_GT(failures, 20);
}

// Eight samples of 100 places: a place's gradient is the loss scale / 800, which is too much for half precision while
// the scale is above 2^25.
class HalfOutput : public Network {
 public:
  HalfOutput() { p_ = register_parameter("p", torch::ones({1})); }
  torch::Tensor forward(torch::Tensor input) override { return (input * 0 + p_).to(torch::kFloat16); }
  NetworkInfo info() const override { return {.scale = 1, .in_channels = 1, .out_channels = 1}; }

 private:
  torch::Tensor p_;
};

// Counts the samples of the steps that it is asked for.
class CountingBatches : public BatchSource {
 public:
  Batch next(std::int64_t step, int, int count) override {
    asked_[step] += count;
    const torch::Tensor zeros = torch::zeros({count, 1, 10, 10});
    return {zeros, zeros};
  }
  std::map<std::int64_t, int> asked_;
};

// Field case F9: four micro-batches a step, one step skipped, memory gone once in another.
TEST(FittedSteps, AStepCountsOnceWhateverHappensInIt) {
  Config config = config_of(2, 4);
  config.loss = {.l1 = 1, .charbonnier = 0};
  config.data.color = "gray";
  config.optimizer.clip_norm = 0;
  CountingBatches batches;
  test::StepSetup setup(config, std::make_shared<HalfOutput>(), torch::kCPU, Precision::fp16, 0x1p26);
  FittedSteps steps(setup.config, *setup.network, setup.loss, setup.ops, batches, torch::kCPU);
  FailingAllocator allocator;
  for (std::int64_t step = 0; step < 5; ++step) {
    if (step == 2) allocator.fail_at(40);
    steps.run(step);
  }
  EXPECT_TRUE(allocator.has_failed());
  EXPECT_EQ(steps.plan().parts, 8);
  const UpdateCounters counters = Updater::read(setup.updater.counters());
  EXPECT_EQ(counters.skipped, 1);
  EXPECT_EQ(counters.updates, 4);
  EXPECT_EQ(counters.scale, 0x1p25);
  EXPECT_EQ(LossMeter::read(setup.meter.state()).steps, 5);
  for (const std::int64_t step : {0, 1, 3, 4}) EXPECT_EQ(batches.asked_.at(step), 8) << step;
  EXPECT_GT(batches.asked_.at(2), 8);  // the failed step's samples were asked for again, whole
}

TEST(FittedSteps, SayWhatWouldHelpWhenNothingIsLeftToTry) {
  Config config = config_of(1, 1);
  config.memory.on_oom = "fail";
  auto batches = test::smooth_batches(config);
  Training training(config, batches, test::small_network(1));
  FailingAllocator allocator;
  allocator.fail_at(3);
  try {
    training.steps.run(0);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::out_of_memory);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("step 1: out of memory on cpu"), HasSubstr("1.0 GiB were asked for"),
                                    HasSubstr("memory.on_oom = \"adapt\"")));
  }
}

class FittedStepsGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_card()) GTEST_SKIP() << "no CUDA card";
    stream_.emplace(c10::cuda::getStreamFromPool(false, 0));
    torch::zeros({1}, card_);  // the allocator is there from now on
  }
  void TearDown() override {
    if (!test::has_card()) return;
    c10::cuda::CUDACachingAllocator::setMemoryFraction(1, 0);
    c10::cuda::CUDACachingAllocator::emptyCache();
  }

  static auto reserved() { return c10::cuda::CUDACachingAllocator::getDeviceStats(0).reserved_bytes[0]; }
  static std::int64_t allocated() {
    return c10::cuda::CUDACachingAllocator::getDeviceStats(0).allocated_bytes[0].current;
  }
  // What may be taken from now on, in MiB.
  static void leave(std::int64_t mib) {
    c10::cuda::CUDACachingAllocator::emptyCache();
    std::size_t free = 0, total = 0;
    ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
    const auto reserved = c10::cuda::CUDACachingAllocator::getDeviceStats(0).reserved_bytes[0].current;
    const double share = static_cast<double>(reserved + (mib << 20)) / static_cast<double>(total);
    c10::cuda::CUDACachingAllocator::setMemoryFraction(share, 0);
  }

  const torch::Device card_{torch::kCUDA, 0};
  std::optional<c10::cuda::CUDAStreamGuard> stream_;
};

// Pictures large enough for a real cap: the whole batch needs several times the memory of a part.
class LargeBatches : public BatchSource {
 public:
  explicit LargeBatches(torch::Device device) : device_(device) {}
  Batch next(std::int64_t step, int first, int count) override {
    std::vector<torch::Tensor> inputs, targets;
    for (int i = 0; i < count; ++i) {
      const double value = static_cast<double>((step * 31 + first + i) % 17) / 17;
      inputs.push_back(torch::full({1, 3, 256, 256}, value, device_));
      targets.push_back(torch::full({1, 3, 512, 512}, 1 - value, device_));
    }
    return {torch::cat(inputs), torch::cat(targets)};
  }

 private:
  torch::Device device_;
};

std::shared_ptr<Network> large_network(const char* convs) {
  torch::manual_seed(3);
  return make_network({.options = {{"features", "24"}, {"convs", convs}, {"activation", "prelu"}}});
}

// Field case B1: the whole batch fails under a real cap, half of it fits; memory comes back exactly, and the bits are
// those of a run that began with halves.
TEST_F(FittedStepsGpuTest, AWholeBatchThatDoesNotFitIsSplit) {
  apply_determinism(true);
  for (const char* graph : {"off", "auto"}) {
    SCOPED_TRACE(graph);
    Config whole = config_of(32, 1), halves = config_of(16, 2);
    whole.run.graph = halves.run.graph = graph;
    LargeBatches batches(card_);
    c10::cuda::CUDACachingAllocator::emptyCache();
    c10::cuda::CUDACachingAllocator::resetPeakStats(0);
    const std::int64_t before = reserved().current;
    Training expected(halves, batches, large_network("4"), card_);
    for (std::int64_t step = 0; step < 6; ++step) expected.steps.run(step);
    const std::int64_t needed_mib = (reserved().peak - before) >> 20;
    expected.steps.give_back();
    Training training(whole, batches, large_network("4"), card_);
    const std::int64_t at_rest = allocated();
    leave(needed_mib + needed_mib / 4);
    for (std::int64_t step = 0; step < 6; ++step) training.steps.run(step);
    EXPECT_EQ(training.steps.plan().parts, 2);
    const auto a = training.setup.network->parameters(), b = expected.setup.network->parameters();
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(torch::equal(a[i], b[i])) << i;
    if (std::string(graph) == "off") {
      EXPECT_EQ(allocated(), at_rest);
    }
    c10::cuda::CUDACachingAllocator::setMemoryFraction(1, 0);
  }
  apply_determinism(false);
}

TEST_F(FittedStepsGpuTest, AutoTakesCheckpointingOnlyWhereItIsNeeded) {
  Config config = config_of(4, 1);
  config.memory.checkpointing = "auto";
  LargeBatches batches(card_);
  Training roomy(config, batches, large_network("14"), card_);
  roomy.steps.choose_checkpointing(0);
  EXPECT_EQ(roomy.steps.plan().checkpointing.segments, 0);
  Training tight(config, batches, large_network("14"), card_);
  leave(560);
  tight.steps.choose_checkpointing(0);
  EXPECT_GT(tight.steps.plan().checkpointing.segments, 0);
  tight.steps.run(0);
  EXPECT_EQ(tight.steps.plan().parts, 1);
}

}  // namespace
}  // namespace reelgrad
