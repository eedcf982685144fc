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
  CardRun(const Config& config, std::shared_ptr<Network> network, Precision precision, int parts,
          CheckpointPlan checkpointing = {})
      : setup(config, std::move(network), kCard, precision),
        batches(test::smooth_batches(config, kCard)),
        step(setup.ops, batches, MicroBatches(setup.samples(), parts)) {
    setup.loss.set_checkpointing(checkpointing);
  }

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
    ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*replace=*/0);  // spectral norm multiplies matrices
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

TEST_F(GraphStepGpuTest, WithCheckpointingEqualsEagerStepsWithoutBitForBit) {
  Config deep = config();
  deep.model.options["convs"] = "6";
  const auto network = [&] {
    torch::manual_seed(1);
    return make_network(network_spec(deep));
  };
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    for (const int parts : {1, 2}) {
      SCOPED_TRACE(to_string(precision) + ", " + std::to_string(parts) + " parts");
      CardRun<EagerStep> plain(deep, network(), precision, parts);
      CardRun<EagerStep> eager(deep, network(), precision, parts, {.segments = 3});
      CardRun<GraphStep> graph(deep, network(), precision, parts, {.segments = 3});
      const NamedTensors expected = plain.run(10);
      test::expect_bit_equal(eager.run(10), expected);
      test::expect_bit_equal(graph.run(10), expected);
      EXPECT_THAT(graph.step.why_not(), IsEmpty());
    }
  }
}

// A step of two networks, each with an optimizer of its own: the second learns what the first leaves over.
template <class StepType>
class TwoNetworks {
 public:
  TwoNetworks(const Config& config, int parts)
      : batches_(test::smooth_batches(config, kCard)), step_(ops_, batches_, MicroBatches(kSamples, parts)) {}

  NamedTensors run(int steps) {
    for (int i = 0; i < steps; ++i) step_.run(i);
    NamedTensors state;
    const auto add = [&](const std::string& prefix, const NamedTensors& tensors) {
      for (const auto& [name, tensor] : tensors) state.emplace_back(prefix + name, tensor.detach().cpu().clone());
    };
    add("first.", state_dict(*first_));
    add("second.", state_dict(*second_));
    add("adam.", adam_.state());
    add("sgd.", sgd_.state());
    add("", {{"meter", meter_.state()}, {"meter of the second", second_meter_.state()}});
    return state;
  }
  const StepType& step() const { return step_; }

 private:
  static constexpr int kSamples = 6;

  static std::shared_ptr<Network> on_card(std::uint64_t seed) {
    auto network = test::small_network(seed);
    network->to(kCard);
    return network;
  }
  static LossValue l1(const torch::Tensor& a, const torch::Tensor& b) {
    const torch::Tensor loss = (a - b).abs().mean();
    return {loss, loss.detach().reshape({1})};
  }

  std::shared_ptr<Network> first_ = on_card(1), second_ = on_card(2);
  Updater adam_{{.optimizer = {.name = "adam", .lr = 1e-3, .clip_norm = 0.1},
                 .ema = {.decay = 0.9},
                 .steps = 12,
                 .loss_scaling = true,
                 .initial_scale = 1024},
                *first_};
  Updater sgd_{{.optimizer = {.name = "sgd", .lr = 1e-2}, .ema = {.decay = 0}, .steps = 12}, *second_};
  LossMeter meter_{2, kCard}, second_meter_{2, kCard};
  StepOps ops_{{{whole_backward([this](const Batch& b) { return l1(first_->forward(b.input), b.target); }),
                 first_.get(), &adam_, &meter_},
                {whole_backward([this](const Batch& b) {
                   return l1(second_->forward(b.input), b.target - first_->forward(b.input).detach());
                 }),
                 second_.get(), &sgd_, &second_meter_}},
               kSamples};
  test::FixedBatches batches_;
  StepType step_;
};

TEST_F(GraphStepGpuTest, OfTwoNetworksEqualsEagerStepsBitForBit) {
  for (const int parts : {1, 2, 4}) {
    SCOPED_TRACE(parts);
    TwoNetworks<EagerStep> eager(config(), parts);
    TwoNetworks<GraphStep> graph(config(), parts);
    test::expect_bit_equal(graph.run(10), eager.run(10));
    EXPECT_THAT(graph.step().why_not(), IsEmpty());
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
  std::vector<NetworkSegment> segments() override {
    std::vector<NetworkSegment> all = inner_->segments();
    all.insert(all.begin(), [this](const std::vector<torch::Tensor>& tensors) {
      return std::vector{at::dropout(tensors.front(), 0.5, is_training())};
    });
    return all;
  }

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
void expect_failing_captures_cost_only_the_graph(const Config& config,
                                                 const std::function<std::shared_ptr<Network>()>& make, int parts,
                                                 CheckpointPlan checkpointing = {}) {
  const auto seeded = [&] {
    auto network = make();
    torch::manual_seed(5);
    return network;
  };
  CardRun<EagerStep> eager(config, seeded(), Precision::bf16, parts, checkpointing);
  const NamedTensors expected = eager.run(5);
  test::FailingCardAllocator allocator;
  int given_up = 0;
  for (std::int64_t nth = 1;; ++nth) {
    CardRun<GraphStep> graph(config, seeded(), Precision::bf16, parts, checkpointing);
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
  for (const int parts : {1, 4}) {
    expect_failing_captures_cost_only_the_graph(
        config(), [] { return test::small_network(1); }, parts);
  }
}

TEST_F(GraphStepGpuTest, OutOfMemoryInACaptureWithDropoutAndCheckpointingCostsOnlyTheGraph) {
  for (const int parts : {1, 2}) {
    for (const int segments : {0, 3}) {
      SCOPED_TRACE(testing::Message() << parts << " parts, " << segments << " segments");
      expect_failing_captures_cost_only_the_graph(config(), [] { return std::make_shared<DroppingNetwork>(); }, parts,
                                                  {.segments = segments});
    }
  }
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

struct CudaCall {
  double time;
  std::string thread, name;
  bool launches_a_graph() const { return name.find("GraphLaunch") != std::string::npos; }
};

std::vector<CudaCall> cuda_calls(torch::autograd::profiler::ProfilerResult& profile) {
  const test::TemporaryFolder folder;
  const std::string file = (folder.path() / "trace.json").string();
  profile.save(file);
  std::vector<CudaCall> calls;
  const nlohmann::json trace = nlohmann::json::parse(read_file(file));
  for (const auto& event : trace["traceEvents"]) {
    const std::string category = event.value("cat", "");
    if (category == "cuda_runtime" || category == "cuda_driver")
      calls.push_back({event["ts"], event["tid"].dump(), event["name"]});
  }
  std::ranges::sort(calls, {}, &CudaCall::time);
  return calls;
}

// Names of the CUDA calls, with their counts, that the thread which launches graphs made from the first launch to the
// last.
std::map<std::string, int> calls_between_graphs(torch::autograd::profiler::ProfilerResult& profile) {
  const std::vector<CudaCall> calls = cuda_calls(profile);
  const auto first = std::ranges::find_if(calls, &CudaCall::launches_a_graph);
  const auto last =
      std::find_if(calls.rbegin(), calls.rend(), [](const CudaCall& call) { return call.launches_a_graph(); }).base();
  std::map<std::string, int> counts;
  for (auto call = first; call < last; ++call)
    if (call->thread == first->thread) ++counts[call->name];
  return counts;
}

// No step waits for the card, with metrics read back every 10 steps and the average updated: CUPTI's record of steps 11
// to 50, in which graphs are launched `launches` times.
void expect_no_step_waits(Config config, BatchSource& batches, int launches) {
  config.run.steps = 60;
  config.run.log_every = 10;
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
  torch::manual_seed(1);
  const bool adversarial = config.loss.gan.weight > 0;
  Trainer(config, make_network(network_spec(config)), kCard, batches, recorder, nullptr, hooks,
          adversarial ? make_discriminator(discriminator_options(config), 2) : nullptr)
      .run();
  int launched = 0;
  for (const auto& [name, count] : calls_between_graphs(*profile)) {
    if (name.find("GraphLaunch") != std::string::npos) launched += count;
    EXPECT_EQ(name.find("Synchronize"), std::string::npos) << name << ": " << count;
    EXPECT_NE(name, "cudaMemcpy") << count;
  }
  EXPECT_EQ(launched, launches);
  EXPECT_EQ(recorder.steps.size(), 6u);
}

TEST_F(GraphStepGpuTest, NoStepWaitsForTheCard) {
  for (const char* amp : {"bf16", "fp16"}) {
    SCOPED_TRACE(amp);
    Config config = test::small_config();
    config.precision.amp = amp;
    CardBatches batches;
    expect_no_step_waits(config, batches, 40);
  }
}

// Two networks, of which one is updated at every other step: still one graph a step.
TEST_F(GraphStepGpuTest, NoStepOfTwoNetworksWaitsForTheCard) {
  for (const char* amp : {"bf16", "fp16"}) {
    SCOPED_TRACE(amp);
    Config config = test::small_config();
    config.precision.amp = amp;
    config.loss.gan.weight = 0.1;
    config.discriminator.features = 4;
    config.discriminator.iters = 2;
    CardBatches batches;
    expect_no_step_waits(config, batches, 40);
  }
}

// Steps of one part are one graph, those of two parts three: the parts' and the update's.
TEST_F(GraphStepGpuTest, NoStepWaitsForTheCardWhileFramesAreDecodedForIt) {
  const test::TemporaryFolder folder;
  Config config = test::small_config();
  config.precision.amp = "bf16";
  config.data = testing_data::numbered_config(folder.write("numbered.vpy", testing_data::kNumberedScript)).data;
  config.data.reuse = 4;
  for (const FramePool::Place place : {FramePool::Place::device, FramePool::Place::pinned_host}) {
    for (const int parts : {1, 2}) {
      SCOPED_TRACE(testing::Message() << parts << " parts");
      config.optimizer.accumulate = parts;
      TrainingLoader loader(testing_data::open_clips(config), config, kCard, 0, {.place = place});
      expect_no_step_waits(config, loader, parts == 1 ? 40 : 120);
    }
  }
}

}  // namespace
}  // namespace reelgrad
