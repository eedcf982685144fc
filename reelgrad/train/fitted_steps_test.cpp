#include "reelgrad/train/fitted_steps.h"

#include <c10/core/CPUAllocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <regex>
#include <thread>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/base/log.h"
#include "reelgrad/base/process.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/data/testing.h"
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
    EXPECT_THAT(error.what(), AllOf(HasSubstr("step 1: out of memory on cpu"), HasSubstr("1.0 GiB were asked for\n"),
                                    HasSubstr("memory.on_oom = \"adapt\"")));
  }
}

// A script's own lack of memory is no reason for a smaller step.
TEST(FittedSteps, AFrameThatCannotBeHadForWantOfMemoryIsNoReasonToAdapt) {
  struct LargeFrames : BatchSource {
    Batch next(std::int64_t, int, int) override {
      throw Error(ErrorKind::out_of_memory, "a.vpy, output 0: frame 7: MemoryError");
    }
  } batches;
  Training training(config_of(4, 1), batches, test::small_network(1));
  const MemoryPlan plan = training.steps.plan();
  EXPECT_THROW(training.steps.run(0), Error);
  EXPECT_EQ(training.steps.plan(), plan);
}

TEST(FittedSteps, NetworksBesideOneOfASingleSegmentAreCheckpointed) {
  using Plans = std::vector<CheckpointPlan>;
  EXPECT_EQ(automatic_checkpointing({.segments = 1, .offloaded_segments = 1}), Plans{{}});
  EXPECT_EQ(automatic_checkpointing({.segments = 2, .offloaded_segments = 1}), (Plans{{}, {2, false}}));
  EXPECT_EQ(automatic_checkpointing({.segments = 4, .offloaded_segments = 6}), (Plans{{}, {4, false}, {6, true}}));
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

// Of the host's memory a smaller step on the card takes no less: the ladder is for the card's.
TEST_F(FittedStepsGpuTest, WithoutMemoryOfTheHostTheRunEndsAsItIs) {
  struct NoHostMemory : BatchSource {
    Batch next(std::int64_t, int, int) override { throw std::bad_alloc(); }
  } batches;
  Training training(config_of(4, 1), batches, test::small_network(1), card_);
  const MemoryPlan plan = training.steps.plan();
  try {
    training.steps.run(0);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::out_of_memory);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("step 1: the computer's memory is used up, not that of cuda:0"),
                                    HasSubstr("data.pool_frames = ")));
  }
  EXPECT_EQ(training.steps.plan(), plan);
}

// Memory runs out once, when the batch of step `at` is asked for: also after a capture, whose replays allocate nothing.
class OnceFull : public BatchSource {
 public:
  OnceFull(BatchSource& inner, std::int64_t at) : inner_(inner), at_(at) {}
  Batch next(std::int64_t step, int first, int count) override {
    if (step == at_ && !std::exchange(failed_, true))
      TORCH_CHECK_WITH(OutOfMemoryError, false, "Tried to allocate 1.00 GiB.");
    return inner_.next(step, first, count);
  }
  bool on_card() const override { return inner_.on_card(); }
  void leave_card(std::int64_t next_step) override { inner_.leave_card(next_step); }

 private:
  BatchSource& inner_;
  std::int64_t at_;
  bool failed_ = false;
};

// Everything that is logged while it lives.
class Messages {
 public:
  Messages() {
    log::set_sink([this](log::Level, std::string_view message) { said_.emplace_back(message); });
  }
  ~Messages() { log::set_sink({}); }
  bool mention(const std::string& words) const {
    return std::ranges::any_of(said_, [&](const std::string& line) { return line.find(words) != std::string::npos; });
  }

 private:
  std::vector<std::string> said_;
};

// Of four samples parts are made; with a single one checkpointing is what is left.
TEST_F(FittedStepsGpuTest, APlanThatChangesAfterACaptureIsCapturedAnew) {
  apply_determinism(true);
  for (const int batch : {4, 1}) {
    SCOPED_TRACE(batch);
    Config config = config_of(batch, 1);
    config.model.options["convs"] = "6";
    const auto network = [&](std::uint64_t seed) {
      torch::manual_seed(seed);
      return make_network(network_spec(config));
    };
    auto batches = test::smooth_batches(config, card_);
    OnceFull full(batches, 5);
    const Messages messages;
    Training training(config, full, network(1), card_);
    for (std::int64_t step = 0; step < 5; ++step) training.steps.run(step);
    const MemoryPlan before = training.steps.plan();
    const NamedTensors start = training.setup.state();
    for (std::int64_t step = 5; step < 12; ++step) training.steps.run(step);
    const MemoryPlan plan = training.steps.plan();
    EXPECT_NE(plan, before);
    EXPECT_EQ(plan.parts, batch == 4 ? 2 : 1);
    EXPECT_EQ(plan.checkpointing.segments > 0, batch == 1);
    EXPECT_FALSE(messages.mention("op by op"));

    Training from_start(config, batches, network(2), card_);
    from_start.setup.load(start);
    from_start.steps.set_plan(plan, 5);
    for (std::int64_t step = 5; step < 12; ++step) from_start.steps.run(step);
    test::expect_bit_equal(training.setup.state(), from_start.setup.state());
  }
  apply_determinism(false);
}

// The ladder's first rung: the run goes on with the same samples and bits.
TEST_F(FittedStepsGpuTest, DecodedFramesLeaveTheCardInTheMiddleOfARun) {
  apply_determinism(true);
  const test::TemporaryFolder folder;
  Config config = test::small_config();
  config.run.steps = 20;
  config.data = testing_data::numbered_config(folder.write("numbered.vpy", testing_data::kNumberedScript)).data;
  config.data.reuse = 4;
  for (const char* graph : {"auto", "off"}) {
    SCOPED_TRACE(graph);
    config.run.graph = graph;
    const auto run = [&](std::int64_t full_at) {
      TrainingLoader loader(testing_data::open_clips(config), config, card_, 0, {.place = FramePool::Place::device});
      OnceFull source(loader, full_at);
      test::MemoryRecorder recorder;
      torch::manual_seed(4);
      Trainer(config, make_network(network_spec(config)), card_, source, recorder, nullptr).run();
      EXPECT_EQ(loader.on_card(), full_at < 0);
      return recorder.checkpoints.back().training;
    };
    const NamedTensors undisturbed = run(-1), moved = run(9);
    const StateReader state(moved);
    EXPECT_EQ(memory_plan(*state.find("memory_plan")), (MemoryPlan{.frames_on_host = true}));
    test::expect_bit_equal(test::without(moved, "memory_plan"), test::without(undisturbed, "memory_plan"));
  }
  apply_determinism(false);
}

constexpr std::int64_t kHeldMiB = 3072;
constexpr const char* kHoldVariable = "REELGRAD_TEST_HOLD_CARD_MEMORY";

// The other process of the next test: holds memory of the card until its input ends. The variable names a file that
// says when it does.
TEST(HeldCardMemoryGpu, UntilTheInputEnds) {
  const char* file = std::getenv(kHoldVariable);
  if (file == nullptr) GTEST_SKIP() << "run by FittedStepsGpuTest.AnErrorNamesWhoElseHoldsTheCardsMemory";
  const torch::Tensor held = torch::zeros({kHeldMiB << 20}, torch::dtype(torch::kUInt8).device(torch::kCUDA));
  torch::cuda::synchronize();
  write_file_atomically(file, std::filesystem::read_symlink("/proc/self").string());
  std::cin.ignore(std::numeric_limits<std::streamsize>::max());
}

// Field case B8. Where processes cannot be seen (a container), what they hold is said all the same.
TEST_F(FittedStepsGpuTest, AnErrorNamesWhoElseHoldsTheCardsMemory) {
  const test::TemporaryFolder folder;
  const std::filesystem::path ready = folder.path() / "pid";
  const PipedProcess other({"env", std::string(kHoldVariable) + "=" + ready.string(), executable_path().string(),
                            "--gtest_filter=HeldCardMemoryGpu.UntilTheInputEnds"});
  for (int tenths = 0; tenths < 600 && !std::filesystem::exists(ready); ++tenths)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  ASSERT_TRUE(std::filesystem::exists(ready)) << other.error_output();

  Config config = config_of(32, 1);
  config.memory.on_oom = "fail";
  LargeBatches batches(card_);
  Training training(config, batches, large_network("4"), card_);
  leave(300);
  std::string text;
  try {
    training.steps.run(0);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::out_of_memory);
    text = error.what();
  }
  const std::regex held("process " + read_file(ready) +
                        "[^\n]* holds ([0-9]+) MiB|([0-9]+) MiB are held by no process");
  std::smatch found;
  ASSERT_TRUE(std::regex_search(text, found, held)) << text;
  EXPECT_GE(std::stoll(found[1].matched ? found[1] : found[2]), kHeldMiB) << text;
}

}  // namespace
}  // namespace reelgrad
