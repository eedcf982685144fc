#include "reelgrad/train/checkpointing.h"

#include <ATen/autocast_mode.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <optional>

#include "reelgrad/base/error.h"
#include "reelgrad/train/amp.h"
#include "reelgrad/train/peak_memory.h"
#include "reelgrad/train/test_support.h"

namespace reelgrad {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using TensorList = std::vector<torch::Tensor>;

// A network of segments that a test puts together. Counts how often each is run.
class Chain : public Network {
 public:
  torch::Tensor forward(torch::Tensor input) override {
    TensorList tensors{input};
    for (const NetworkSegment& segment : parts_) tensors = segment(tensors);
    return tensors.front();
  }
  NetworkInfo info() const override { return {}; }
  std::vector<NetworkSegment> segments() override { return parts_; }

  torch::Tensor weight(torch::IntArrayRef sizes) {
    const std::string name = "w" + std::to_string(parameters().size());
    return register_parameter(name, torch::rand(sizes, at::detail::createCPUGenerator(parameters().size())) - 0.5);
  }
  void add(const NetworkSegment& segment) {
    const std::size_t index = parts_.size();
    runs.push_back(0);
    parts_.emplace_back([this, index, segment](const TensorList& tensors) {
      ++runs[index];
      return segment(tensors);
    });
  }
  // {x} -> {relu(conv(x)), dropped out by `dropout`}
  void add_conv(const torch::Tensor& weight, double dropout = 0) {
    add([weight, dropout](const TensorList& in) {
      const torch::Tensor y = at::relu(at::conv2d(in[0], weight, {}, 1, at::IntArrayRef{1}));
      return TensorList{dropout > 0 ? at::dropout(y, dropout, /*train=*/true) : y};
    });
  }

  std::vector<int> runs;

 private:
  std::vector<NetworkSegment> parts_;
};

std::shared_ptr<Network> compact(int convs, int features = 8) {
  torch::manual_seed(2);
  return make_network({.options = {{"features", std::to_string(features)}, {"convs", std::to_string(convs)}}});
}

std::shared_ptr<Chain> chain_with_dropout() {
  const auto chain = std::make_shared<Chain>();
  for (const int in : {3, 6, 6}) chain->add_conv(chain->weight({6, in, 3, 3}), 0.5);
  return chain;
}

struct Pass {
  torch::Tensor output;
  TensorList gradients;   // after two micro-batches
  TensorList generators;  // states afterwards
};

torch::Tensor generator_state_of(torch::Device device) {
  return at::globalContext().defaultGenerator(device).get_state();
}

TensorList gradients_of(const Network& network) {
  TensorList gradients;
  for (const torch::Tensor& parameter : network.parameters()) gradients.push_back(parameter.grad().clone());
  return gradients;
}

// Two micro-batches whose gradients add up, backward outside of autocast.
Pass train_on(Network& network, const torch::Tensor& input, const CheckpointPlan& plan,
              Precision precision = Precision::fp32) {
  torch::manual_seed(3);
  network.zero_grad();
  Pass pass;
  for (const double brightness : {1.0, 0.5}) {
    {
      const AutocastGuard autocast(input.device(), precision);
      pass.output = forward_checkpointed(network, input * brightness, plan);
    }
    pass.output.to(torch::kFloat32).square().mean().backward();
  }
  pass.gradients = gradients_of(network);
  pass.generators.push_back(generator_state_of(torch::kCPU));
  if (input.is_cuda()) pass.generators.push_back(generator_state_of(input.device()));
  return pass;
}

void expect_equal(const TensorList& a, const TensorList& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(torch::equal(a[i], b[i])) << "number " << i;
}

void expect_equal(const Pass& a, const Pass& b) {
  EXPECT_TRUE(torch::equal(a.output, b.output));
  EXPECT_EQ(a.output.scalar_type(), b.output.scalar_type());
  expect_equal(a.gradients, b.gradients);
  expect_equal(a.generators, b.generators);
}

torch::Tensor picture(torch::Device device = torch::kCPU, int size = 10, int count = 2) {
  return torch::rand({count, 3, size, size}, at::detail::createCPUGenerator(1)).to(device);
}

TEST(Checkpointing, GradientsAreThoseWithout) {
  const auto network = compact(6);
  const Pass off = train_on(*network, picture(), {});
  for (const int segments : {1, 2, 3, 5, 8, 100}) {
    SCOPED_TRACE(segments);
    expect_equal(train_on(*network, picture(), {.segments = segments}), off);
  }
  expect_equal(train_on(*network, picture(), {.segments = 4, .offload = true}), off);  // nothing to move on the CPU
}

TEST(Checkpointing, GradientsOfAChannelsLastInputAreThoseWithout) {
  const auto network = compact(4);
  const torch::Tensor input = picture().contiguous(torch::MemoryFormat::ChannelsLast);
  expect_equal(train_on(*network, input, {.segments = 3}), train_on(*network, input, {}));

  std::vector<bool> channels_last;
  Chain probe;
  probe.add_conv(probe.weight({6, 3, 3, 3}));
  for (int i = 0; i < 2; ++i) {
    probe.add([&](const TensorList& in) {
      channels_last.push_back(in[0].is_contiguous(torch::MemoryFormat::ChannelsLast));
      return TensorList{in[0] * 2};
    });
  }
  forward_checkpointed(probe, input, {.segments = 3}).sum().backward();
  EXPECT_THAT(channels_last, AllOf(testing::SizeIs(3), Each(true)));
}

TEST(Checkpointing, DividesEquallyAndRunsAllButTheLastGroupAgain) {
  Chain chain;
  for (int i = 0; i < 5; ++i) chain.add_conv(chain.weight({3, 3, 3, 3}));
  forward_checkpointed(chain, picture(), {.segments = 2}).sum().backward();
  EXPECT_THAT(chain.runs, ElementsAre(2, 2, 1, 1, 1));
  forward_checkpointed(chain, picture(), {.segments = 3}).sum().backward();
  EXPECT_THAT(chain.runs, ElementsAre(4, 4, 3, 2, 2));
}

TEST(Checkpointing, RunsNothingTwiceWithoutGradients) {
  Chain chain;
  for (int i = 0; i < 3; ++i) chain.add_conv(chain.weight({3, 3, 3, 3}));
  {
    const torch::NoGradGuard no_grad;
    EXPECT_FALSE(forward_checkpointed(chain, picture(), {.segments = 3}).requires_grad());
  }
  for (torch::Tensor& parameter : chain.parameters()) parameter.set_requires_grad(false);
  EXPECT_FALSE(forward_checkpointed(chain, picture(), {.segments = 3}).requires_grad());
  EXPECT_THAT(chain.runs, ElementsAre(2, 2, 2));
}

TEST(Checkpointing, FrozenWeightsStayWithoutGradients) {
  Chain chain;
  for (int i = 0; i < 3; ++i) chain.add_conv(chain.weight({3, 3, 3, 3}));
  std::vector<torch::Tensor> weights = chain.parameters();
  weights[1].set_requires_grad(false);
  const auto gradients = [&](int segments) {
    chain.zero_grad();
    forward_checkpointed(chain, picture(), {.segments = segments}).sum().backward();
    EXPECT_FALSE(weights[1].grad().defined());
    return TensorList{weights[0].grad().clone(), weights[2].grad().clone()};
  };
  expect_equal(gradients(3), gradients(0));
}

TEST(Checkpointing, AnInputThatNeedsAGradientGetsIt) {
  const auto network = compact(3);
  const auto gradient = [&](int segments) {
    const torch::Tensor input = picture().requires_grad_();
    forward_checkpointed(*network, input, {.segments = segments}).square().sum().backward();
    return input.grad();
  };
  EXPECT_TRUE(torch::equal(gradient(3), gradient(0)));
}

TEST(Checkpointing, AWeightOfTwoGroupsHasTheSumOfBoth) {
  Chain chain;
  const torch::Tensor shared = chain.weight({3, 3, 3, 3});
  chain.add_conv(shared);
  chain.add_conv(chain.weight({3, 3, 3, 3}));
  chain.add_conv(shared);
  expect_equal(train_on(chain, picture(), {.segments = 3}), train_on(chain, picture(), {}));
}

// Three tensors between the parts: one made on the way and used twice, one that is passed along, and integers.
TEST(Checkpointing, SeveralTensorsPassBetweenSegments) {
  Chain chain;
  const torch::Tensor first = chain.weight({3, 3, 3, 3}), second = chain.weight({3, 3, 3, 3});
  chain.add([=](const TensorList& in) {
    const torch::Tensor x = at::conv2d(in[0], first, {}, 1, at::IntArrayRef{1});
    return TensorList{x, in[0], x.argmax(1, /*keepdim=*/true)};
  });
  chain.add([=](const TensorList& in) {
    return TensorList{at::conv2d(in[0].tanh(), second, {}, 1, at::IntArrayRef{1}) + in[1], in[0], in[1], in[2]};
  });
  chain.add([](const TensorList& in) { return TensorList{in[0] * in[1] + in[2] + in[1].gather(1, in[3])}; });
  expect_equal(train_on(chain, picture(), {.segments = 3}), train_on(chain, picture(), {}));
}

TEST(Checkpointing, DropoutDrawsTheSameNumbersAgain) {
  const auto chain = chain_with_dropout();
  const Pass off = train_on(*chain, picture(), {});
  EXPECT_FALSE(torch::equal(off.generators[0], (torch::manual_seed(3), generator_state_of(torch::kCPU))));
  for (const int segments : {2, 3}) expect_equal(train_on(*chain, picture(), {.segments = segments}), off);
}

TEST(Checkpointing, AFailedSecondRunLeavesGeneratorsAndAutocastAsTheyWere) {
  const auto chain = chain_with_dropout();
  bool fails = false;
  chain->add([&](const TensorList& in) {
    if (fails) throw std::runtime_error("second run");
    return TensorList{at::dropout(in[0], 0.5, true)};
  });
  chain->add_conv(chain->weight({3, 6, 3, 3}));
  torch::Tensor output;
  {
    const AutocastGuard autocast(torch::kCPU, Precision::bf16);
    output = forward_checkpointed(*chain, picture(), {.segments = 5});
  }
  const torch::Tensor before = generator_state_of(torch::kCPU);
  fails = true;
  EXPECT_THROW(output.sum().backward(), std::runtime_error);
  EXPECT_FALSE(at::autocast::is_autocast_enabled(torch::kCPU));
  EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
  EXPECT_TRUE(torch::equal(generator_state_of(torch::kCPU), before));
}

// What a segment saw of autocast, each time it was run.
struct SeenAutocast {
  bool enabled;
  torch::ScalarType output;
  bool operator==(const SeenAutocast&) const = default;
};

void expect_second_run_in_the_same_precision(torch::Device device) {
  Chain chain;
  std::vector<SeenAutocast> seen;
  const torch::Tensor weight = chain.weight({3, 3, 3, 3});
  chain.add([&](const TensorList& in) {
    const torch::Tensor y = at::conv2d(in[0], chain.parameters()[0], {}, 1, at::IntArrayRef{1});
    seen.push_back({at::autocast::is_autocast_enabled(device.type()), y.scalar_type()});
    return TensorList{y};
  });
  chain.add_conv(chain.weight({3, 3, 3, 3}));
  chain.to(device);
  const auto run = [&](Precision forward, std::optional<Precision> backward) {
    seen.clear();
    std::optional<AutocastGuard> autocast(std::in_place, device, forward);
    const torch::Tensor loss = forward_checkpointed(chain, picture(device), {.segments = 2}).sum();
    if (!backward) autocast.reset();
    std::optional<AutocastGuard> other;
    if (backward && *backward != forward) other.emplace(device, *backward);
    loss.backward();
  };
  constexpr SeenAutocast kBf16{true, torch::kBFloat16}, kFp32{false, torch::kFloat32};
  run(Precision::bf16, std::nullopt);
  EXPECT_THAT(seen, ElementsAre(kBf16, kBf16));
  run(Precision::bf16, Precision::bf16);
  EXPECT_THAT(seen, ElementsAre(kBf16, kBf16));
  run(Precision::bf16, Precision::fp32);
  EXPECT_THAT(seen, ElementsAre(kBf16, kBf16));
  run(Precision::fp32, Precision::bf16);
  EXPECT_THAT(seen, ElementsAre(kFp32, kFp32));
}

TEST(Checkpointing, TheSecondRunIsInForwardsPrecision) {
  expect_second_run_in_the_same_precision(torch::kCPU);
}

TEST(Checkpointing, GradientsUnderAutocastAreThoseWithout) {
  const auto network = compact(4);
  const Pass off = train_on(*network, picture(), {}, Precision::bf16);
  expect_equal(train_on(*network, picture(), {.segments = 3}, Precision::bf16), off);
  EXPECT_FALSE(torch::equal(off.gradients[0], train_on(*network, picture(), {}).gradients[0]));
}

// A cast that forward made without gradients must not be what backward, in the same autocast region, finds in the
// cache.
TEST(Checkpointing, BackwardInsideAutocastFindsNoStaleCasts) {
  const auto network = compact(4);
  const auto gradients = [&](int segments) {
    network->zero_grad();
    const AutocastGuard autocast(torch::kCPU, Precision::bf16);
    for (int i = 0; i < 2; ++i) {
      forward_checkpointed(*network, picture(), {.segments = segments}).to(torch::kFloat32).sum().backward();
      at::autocast::clear_cache();
    }
    return gradients_of(*network);
  };
  expect_equal(gradients(3), gradients(0));
}

TEST(Checkpointing, ASegmentThatChangesItsInputIsRefused) {
  Chain chain;
  chain.add_conv(chain.weight({3, 3, 3, 3}));
  chain.add([](const TensorList& in) { return TensorList{in[0].mul_(2).relu()}; });
  chain.add_conv(chain.weight({3, 3, 3, 3}));
  try {
    forward_checkpointed(chain, picture(), {.segments = 3});
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("in place"), HasSubstr("memory.checkpointing = \"off\"")));
  }
}

TEST(Checkpointing, ANetworkThatDoesNotEndInOneTensorIsRefused) {
  Chain chain;
  chain.add([](const TensorList& in) { return TensorList{in[0], in[0]}; });
  EXPECT_THROW(forward_checkpointed(chain, picture(), {.segments = 1}), Error);
}

TEST(Checkpointing, AutomaticIsTheSquareRootOfTheFinestSegments) {
  EXPECT_EQ(compact(16)->segments().size(), 18U);
  EXPECT_EQ(automatic_segments(*compact(16)), 4);
  EXPECT_EQ(automatic_segments(*compact(254)), 16);
  EXPECT_EQ(automatic_segments(*compact(254), /*offload=*/true), 32);
  EXPECT_EQ(automatic_segments(*compact(30), /*offload=*/true), 8);  // of four each
  Chain single;
  single.add_conv(single.weight({3, 3, 3, 3}));
  EXPECT_EQ(automatic_segments(single), 1);
}

std::int64_t peak_of(Network& network, const torch::Tensor& input, const CheckpointPlan& plan,
                     Precision precision = Precision::fp32) {
  train_on(network, input, plan, precision);
  const PeakMemory peak(input.device());
  train_on(network, input, plan, precision);
  return peak.bytes();
}

// By hand, in tensors of one layer, two of which a convolution with PReLU keeps: off 2 * 34; on 5 between groups, 2 * 6
// in one, and a few in flight: about a third.
TEST(Checkpointing, TakesLessMemory) {
  const auto network = compact(32);
  const torch::Tensor input = picture(torch::kCPU, 48);
  const auto off = static_cast<double>(peak_of(*network, input, {}));
  const double layer = 2 * 8 * 48 * 48 * sizeof(float);
  EXPECT_GT(off, 2 * 32 * layer);
  EXPECT_LT(static_cast<double>(peak_of(*network, input, {.segments = 6})), 0.4 * off);
}

// Running statistics are brought forward once, and what is computed with them is the same.
TEST(Checkpointing, ChangesBuffersOnce) {
  const auto make = [] {
    const auto chain = std::make_shared<Chain>();
    for (int i = 0; i < 3; ++i) {
      const torch::Tensor weight = chain->weight({3, 3, 3, 3});
      const torch::Tensor mean = chain->register_buffer("mean" + std::to_string(i), torch::zeros({3}));
      const torch::Tensor variance = chain->register_buffer("variance" + std::to_string(i), torch::ones({3}));
      chain->add([=](const TensorList& in) {
        const torch::Tensor y = at::conv2d(in[0], weight, {}, 1, at::IntArrayRef{1});
        return TensorList{at::batch_norm(y, {}, {}, mean, variance, /*training=*/true, 0.1, 1e-5, false)};
      });
    }
    return chain;
  };
  const torch::Tensor input = torch::rand({2, 3, 8, 8}, at::detail::createCPUGenerator(1));
  const auto plain = make(), checkpointed = make();
  expect_equal(train_on(*checkpointed, input, {.segments = 3}), train_on(*plain, input, {}));
  expect_equal(checkpointed->buffers(), plain->buffers());
}

TEST(Checkpointing, OnlyOffloadKeepsAStepOutOfAGraph) {
  EXPECT_TRUE(can_be_captured({.segments = 4}));
  EXPECT_FALSE(can_be_captured({.segments = 4, .offload = true}));
}

// --- On a card ---

class CheckpointingGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_card()) GTEST_SKIP() << "no CUDA card";
    apply_determinism(true);
  }
  void TearDown() override { apply_determinism(false); }

  static std::shared_ptr<Network> to_card(std::shared_ptr<Network> network) {
    network->to(kCard);
    return network;
  }

  static inline const torch::Device kCard{torch::kCUDA, 0};
  static constexpr auto kChannelsLast = torch::MemoryFormat::ChannelsLast;
};

TEST_F(CheckpointingGpu, GradientsAreThoseWithout) {
  const auto network = to_card(compact(6, 32));
  const torch::Tensor input = picture(kCard, 96);  // more than 1 MiB between segments: they move to the host
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    SCOPED_TRACE(to_string(precision));
    const torch::Tensor batch = precision == Precision::fp32 ? input : input.contiguous(kChannelsLast);
    const Pass off = train_on(*network, batch, {}, precision);
    for (const int segments : {2, 3, 8}) {
      for (const bool offload : {false, true}) {
        SCOPED_TRACE(testing::Message() << segments << (offload ? " with offload" : ""));
        expect_equal(train_on(*network, batch, {.segments = segments, .offload = offload}, precision), off);
      }
    }
  }
}

TEST_F(CheckpointingGpu, DropoutDrawsTheSameNumbersAgain) {
  const auto chain = to_card(chain_with_dropout());
  const Pass off = train_on(*chain, picture(kCard), {});
  torch::manual_seed(3);
  EXPECT_FALSE(torch::equal(off.generators[1], generator_state_of(kCard)));
  for (const int segments : {2, 3}) expect_equal(train_on(*chain, picture(kCard), {.segments = segments}), off);
}

TEST_F(CheckpointingGpu, TheSecondRunIsInForwardsPrecision) {
  expect_second_run_in_the_same_precision(kCard);
}

TEST_F(CheckpointingGpu, TakesLessMemory) {
  const auto network = to_card(compact(64, 32));
  const torch::Tensor input = picture(kCard, 64, 8).contiguous(kChannelsLast);
  const auto peak = [&](const CheckpointPlan& plan) {
    return static_cast<double>(peak_of(*network, input, plan, Precision::bf16));
  };
  const double off = peak({});
  const double on = peak({.segments = 8});
  EXPECT_LT(on, 0.35 * off);
  // Of the 15 tensors between 16 groups those of two groups are on the card at once; where the peak is moves with it,
  // to the largest group.
  const double between = 8.0 * 32 * 64 * 64 * 2;
  const double more = peak({.segments = 16});
  const double offloaded = peak({.segments = 16, .offload = true});
  EXPECT_LT(offloaded, more - 7 * between);
  EXPECT_LT(offloaded, 0.8 * on);
}

TEST_F(CheckpointingGpu, OffloadedStepsInARowAreAllRight) {
  const auto network = to_card(compact(30, 32));
  const torch::Tensor input = picture(kCard, 64, 8).contiguous(kChannelsLast);
  const Pass off = train_on(*network, input, {}, Precision::bf16);
  for (int step = 0; step < 20; ++step) {
    expect_equal(train_on(*network, input, {.segments = 16, .offload = true}, Precision::bf16), off);
  }
}

// A graph of forward and backward with dropout: every replay is the eager step that comes next.
TEST_F(CheckpointingGpu, ACapturedStepIsTheEagerOne) {
  const auto chain = to_card(chain_with_dropout());
  const torch::Tensor input = picture(kCard);
  const auto step = [&] {
    chain->zero_grad(/*set_to_none=*/true);
    const AutocastGuard autocast(kCard, Precision::bf16);
    forward_checkpointed(*chain, input, {.segments = 3}).to(torch::kFloat32).square().mean().backward();
  };
  std::vector<TensorList> eager;
  torch::manual_seed(5);
  for (int i = 0; i < 3; ++i) {
    step();
    eager.push_back(gradients_of(*chain));
  }
  const torch::Tensor generator = generator_state_of(kCard);
  EXPECT_FALSE(torch::equal(eager[0][0], eager[1][0]));

  const c10::cuda::CUDAStreamGuard on_stream(c10::cuda::getStreamFromPool(false, 0));
  step();
  torch::cuda::synchronize();
  at::cuda::CUDAGraph graph;
  graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
  step();
  graph.capture_end();
  torch::manual_seed(5);
  for (int i = 0; i < 3; ++i) {
    SCOPED_TRACE(i);
    graph.replay();
    expect_equal(gradients_of(*chain), eager[i]);
  }
  EXPECT_TRUE(torch::equal(generator_state_of(kCard), generator));
}

TEST_F(CheckpointingGpu, OffloadWithinACaptureIsRefused) {
  const auto network = to_card(compact(4));
  const torch::Tensor input = picture(kCard);
  const c10::cuda::CUDAStreamGuard on_stream(c10::cuda::getStreamFromPool(false, 0));
  forward_checkpointed(*network, input, {.segments = 3, .offload = true});
  torch::cuda::synchronize();
  at::cuda::CUDAGraph graph;
  graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
  EXPECT_THROW(forward_checkpointed(*network, input, {.segments = 3, .offload = true}), Error);
  input.mul(2);
  graph.capture_end();
}

}  // namespace
}  // namespace reelgrad
