#include "reelgrad/train/graph_step.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "reelgrad/base/files.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/data/testing.h"

#include "reelgrad/train/failing_card_allocator.h"
#include "reelgrad/train/test_support.h"

namespace reelgrad {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

const torch::Device kCard{torch::kCUDA, 0};

// A run with these steps, on the card.
template <class StepType>
struct CardRun {
  CardRun(const Config& config, std::shared_ptr<Network> network, Precision precision, int parts)
      : setup(config, std::move(network), kCard, precision),
        batches(test::smooth_batches(config, kCard)),
        step(setup.ops, batches, MicroBatches(setup.samples(), parts)) {}

  NamedTensors run(int steps) {
    for (int i = 0; i < steps; ++i) step.run(i);
    return setup.state();
  }

  test::StepSetup setup;
  test::FixedBatches batches;
  StepType step;
};

class GraphStepGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_card()) GTEST_SKIP() << "no CUDA card";
    stream_.emplace(c10::cuda::getStreamFromPool(false, 0));
    apply_determinism(true);
  }
  void TearDown() override { apply_determinism(false); }

  static Config config() {
    Config config = test::small_config();
    config.data.batch = 3;
    config.optimizer.accumulate = 2;
    config.optimizer.clip_norm = 0.1;
    config.schedule = {.name = "cosine", .warmup_steps = 3};
    config.ema.decay = 0.9;
    return config;
  }

  std::optional<c10::cuda::CUDAStreamGuard> stream_;
};

TEST_F(GraphStepGpuTest, EqualsEagerStepsBitForBit) {
  for (const Precision precision : {Precision::fp32, Precision::fp16, Precision::bf16}) {
    for (const int parts : {1, 2, 4}) {  // 4: micro-batches of 1 and 2
      SCOPED_TRACE(to_string(precision) + ", " + std::to_string(parts) + " parts");
      CardRun<EagerStep> eager(config(), test::small_network(1), precision, parts);
      CardRun<GraphStep> graph(config(), test::small_network(1), precision, parts);
      test::expect_bit_equal(graph.run(12), eager.run(12));
      EXPECT_THAT(graph.step.why_not(), IsEmpty());
    }
  }
}

// Decoding threads allocate and copy while a step is captured.
TEST_F(GraphStepGpuTest, IsCapturedBesideThreadsThatAllocate) {
  std::atomic<bool> stop = false;
  std::thread other([&] {
    const c10::cuda::CUDAStreamGuard stream(c10::cuda::getStreamFromPool(false, 0));
    while (!stop) {
      void* memory = nullptr;
      ASSERT_EQ(cudaMalloc(&memory, 1 << 20), cudaSuccess);
      torch::zeros({1 << 18}, torch::kCUDA).add_(1);
      cudaFree(memory);
    }
  });
  for (int i = 0; i < 10; ++i) {
    CardRun<GraphStep> graph(config(), test::small_network(1), Precision::bf16, 1);
    graph.run(4);
    EXPECT_THAT(graph.step.why_not(), IsEmpty());
  }
  stop = true;
  other.join();
}

// The crops are cut within the graph, from frames that other threads decode and send meanwhile.
TEST_F(GraphStepGpuTest, OverALoaderEqualsEagerSteps) {
  const test::TemporaryFolder folder;
  Config config = testing_data::numbered_config(folder.write("numbered.vpy", testing_data::kNumberedScript));
  config.data.reuse = 4;
  config.model.options = {{"features", "4"}, {"convs", "1"}, {"activation", "prelu"}};
  const auto run = [&](FramePool::Place place, int parts, bool graph) {
    TrainingLoader loader(testing_data::open_clips(config), config, kCard, 0, {.place = place});
    torch::manual_seed(4);
    test::StepSetup setup(config, make_network(network_spec(config)), kCard);
    const MicroBatches micro(setup.samples(), parts);
    GraphStep captured(setup.ops, loader, micro);
    EagerStep eager(setup.ops, loader, micro);
    Step& step = graph ? static_cast<Step&>(captured) : eager;
    for (int i = 0; i < 30; ++i) step.run(i);
    EXPECT_THAT(captured.why_not(), IsEmpty());
    return setup.state();
  };
  for (const FramePool::Place place : {FramePool::Place::device, FramePool::Place::pinned_host}) {
    for (const int parts : {1, 3}) {
      SCOPED_TRACE(parts);
      test::expect_bit_equal(run(place, parts, true), run(place, parts, false));
    }
  }
}

// Asks the card for a number in the middle of a step.
class AskingNetwork : public Network {
 public:
  AskingNetwork() { inner_ = register_module("inner", test::small_network(1)); }
  torch::Tensor forward(torch::Tensor input) override {
    return inner_->forward(input * (input.max().item<double>() > 2 ? 0.5 : 1.0));
  }
  NetworkInfo info() const override { return inner_->info(); }

 private:
  std::shared_ptr<Network> inner_;
};

TEST_F(GraphStepGpuTest, ANetworkThatCannotBeCapturedGoesOnEagerly) {
  CardRun<GraphStep> graph(config(), std::make_shared<AskingNetwork>(), Precision::fp32, 1);
  const NamedTensors ours = graph.run(8);
  EXPECT_FALSE(graph.step.why_not().empty());
  CardRun<EagerStep> eager(config(), std::make_shared<AskingNetwork>(), Precision::fp32, 1);
  test::expect_bit_equal(ours, eager.run(8));
  // The allocator and the generators have come out of it well: another network is captured after it.
  CardRun<GraphStep> next(config(), test::small_network(1), Precision::fp32, 1);
  next.run(6);
  EXPECT_THAT(next.step.why_not(), IsEmpty());
  EXPECT_TRUE(torch::rand({4}, torch::kCUDA).isfinite().all().item<bool>());
}

// Draws random numbers: each replay must draw new ones, the same as eager steps.
class DroppingNetwork : public Network {
 public:
  DroppingNetwork() { inner_ = register_module("inner", test::small_network(1)); }
  torch::Tensor forward(torch::Tensor input) override {
    return inner_->forward(at::dropout(input, 0.5, is_training()));
  }
  NetworkInfo info() const override { return inner_->info(); }

 private:
  std::shared_ptr<Network> inner_;
};

TEST_F(GraphStepGpuTest, DrawsTheRandomNumbersOfEagerSteps) {
  torch::manual_seed(5);
  CardRun<GraphStep> graph(config(), std::make_shared<DroppingNetwork>(), Precision::fp32, 1);
  torch::manual_seed(5);
  const NamedTensors ours = graph.run(10);
  CardRun<EagerStep> eager(config(), std::make_shared<DroppingNetwork>(), Precision::fp32, 1);
  torch::manual_seed(5);
  test::expect_bit_equal(ours, eager.run(10));
}

// Memory runs out at each allocation of a capture in turn: the graph is given up with its pool, and the steps go on op
// by op with the same bits; what is captured afterwards is captured well.
void expect_failing_captures_cost_only_the_graph(const Config& config, int parts) {
  CardRun<EagerStep> eager(config, test::small_network(1), Precision::bf16, parts);
  const NamedTensors expected = eager.run(5);
  test::FailingCardAllocator allocator;
  int given_up = 0;
  for (std::int64_t nth = 1;; ++nth) {
    CardRun<GraphStep> graph(config, test::small_network(1), Precision::bf16, parts);
    graph.run(2);
    allocator.fail_at(nth);
    for (int step = 2; step < 5; ++step) graph.step.run(step);
    const bool failed = allocator.has_failed();
    allocator.fail_at(0);
    if (!failed) break;
    if (!graph.step.why_not().empty()) ++given_up;  // libraries do without a workspace that they cannot have
    test::expect_bit_equal(graph.setup.state(), expected);
    ASSERT_FALSE(testing::Test::HasFailure()) << "allocation " << nth;
  }
  EXPECT_GT(given_up, 20);
}

TEST_F(GraphStepGpuTest, OutOfMemoryAtAnyAllocationOfACaptureCostsOnlyTheGraph) {
  for (const int parts : {1, 4}) expect_failing_captures_cost_only_the_graph(config(), parts);
}

// The same pictures on the card at each step: asks nothing of the host.
class CardBatches : public BatchSource {
 public:
  Batch next(std::int64_t, int, int count) override {
    return {input_.narrow(0, 0, count), target_.narrow(0, 0, count)};
  }

 private:
  torch::Tensor input_ = torch::rand({8, 3, 8, 8}, kCard), target_ = torch::rand({8, 3, 16, 16}, kCard);
};

using ::torch::profiler::impl::ActivityType;
using ::torch::profiler::impl::ProfilerState;

// Names of the CUDA calls that were made between the first and the last launch of a graph in a profile, with their
// counts.
std::map<std::string, int> calls_between_graphs(torch::autograd::profiler::ProfilerResult& profile) {
  const test::TemporaryFolder folder;
  const std::string file = (folder.path() / "trace.json").string();
  profile.save(file);
  std::vector<std::pair<double, std::string>> calls;
  const nlohmann::json trace = nlohmann::json::parse(read_file(file));
  for (const auto& event : trace["traceEvents"]) {
    const std::string category = event.value("cat", "");
    if (category == "cuda_runtime" || category == "cuda_driver") calls.emplace_back(event["ts"], event["name"]);
  }
  std::ranges::sort(calls);
  const auto is_graph = [](const auto& call) { return call.second.find("GraphLaunch") != std::string::npos; };
  const auto first = std::ranges::find_if(calls, is_graph);
  const auto last = std::find_if(calls.rbegin(), calls.rend(), is_graph).base();
  std::map<std::string, int> counts;
  for (auto call = first; call < last; ++call) ++counts[call->second];
  return counts;
}

// No step waits for the card, with metrics read back every 10 steps and the average updated: CUPTI's record of steps 11
// to 50.
TEST_F(GraphStepGpuTest, NoStepWaitsForTheCard) {
  for (const char* amp : {"bf16", "fp16"}) {
    SCOPED_TRACE(amp);
    Config config = test::small_config();
    config.run.steps = 60;
    config.run.log_every = 10;
    config.precision.amp = amp;
    CardBatches batches;
    test::MemoryRecorder recorder;
    const std::set<ActivityType> activities{ActivityType::CUDA};
    const torch::autograd::profiler::ProfilerConfig profiler(ProfilerState::KINETO);
    std::unique_ptr<torch::autograd::profiler::ProfilerResult> profile;
    int steps = 0;
    TrainerHooks hooks;
    hooks.stop_requested = [&] {  // before each step
      if (++steps == 11) {
        torch::autograd::profiler::prepareProfiler(profiler, activities);
        torch::autograd::profiler::enableProfiler(profiler, activities);
      }
      if (steps == 51) profile = torch::autograd::profiler::disableProfiler();
      return false;
    };
    Trainer(config, test::small_network(1), kCard, batches, recorder, nullptr, hooks).run();
    int launches = 0;
    for (const auto& [name, count] : calls_between_graphs(*profile)) {
      if (name.find("GraphLaunch") != std::string::npos) launches += count;
      EXPECT_EQ(name.find("Synchronize"), std::string::npos) << name << ": " << count;
      EXPECT_NE(name, "cudaMemcpy") << count;
    }
    EXPECT_EQ(launches, 40);
    EXPECT_EQ(recorder.steps.size(), 6u);
  }
}

}  // namespace
}  // namespace reelgrad
