// Every architecture on a card: it trains in half precision, op by op and captured, with the same bits; it starts as on
// the CPU and restores what the CPU restores.
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>
#include <optional>
#include <type_traits>

#include "reelgrad/nn/small_networks.h"
#include "reelgrad/train/graph_step.h"
#include "reelgrad/train/test_support.h"

namespace reelgrad {
namespace {

NetworkSpec twice_or_same_size(const Architecture& row) {
  const auto scales = find_architecture(row.name)->scales;
  return test::small_spec(row, scales[std::min<std::size_t>(1, scales.size() - 1)]);
}

// [count, (T,) C, about 32, about 24]
torch::Tensor pictures_for(const NetworkInfo& info, int count, std::uint64_t seed) {
  const auto fitting = [&](int side) {
    return (side + info.size_multiple - 1) / info.size_multiple * info.size_multiple;
  };
  std::vector<std::int64_t> shape{count, info.in_channels, fitting(32), fitting(24)};
  if (info.window > 1) shape.insert(shape.begin() + 1, info.window);
  return torch::rand(shape, at::detail::createCPUGenerator(seed));
}

class ArchitectureGpuTest : public testing::TestWithParam<const Architecture*> {
 protected:
  static constexpr int kSamples = 2;
  static constexpr int kSteps = 4;  // of which a graph replays two

  void SetUp() override {
    if (!test::has_card()) GTEST_SKIP() << "no CUDA card";
    stream_.emplace(c10::cuda::getStreamFromPool(false, 0));
    apply_determinism(true);
  }
  void TearDown() override { apply_determinism(false); }

  std::shared_ptr<Network> on_card() const {
    torch::manual_seed(1);
    auto network = make_network(spec());
    network->to(card_);
    to_channels_last(*network);
    return network;
  }

  NetworkSpec spec() const { return twice_or_same_size(*GetParam()); }

  Config config() const {
    Config config = test::small_config();
    config.run.steps = kSteps;
    config.data.batch = kSamples;
    config.data.window = spec().window;
    config.model = {.arch = spec().arch, .scale = spec().scale, .options = spec().options};
    return config;
  }

  // What the network, its optimizer and the meter hold after the steps.
  template <class StepType>
  NamedTensors trained(Precision precision, const CheckpointPlan& checkpointing) const {
    const auto network = on_card();
    const NetworkInfo info = network->info();
    const torch::Tensor inputs = pictures_for(info, kSamples, 2).to(card_);
    const torch::Tensor targets =
        torch::rand({kSamples, info.out_channels, inputs.size(-2) * info.scale, inputs.size(-1) * info.scale},
                    at::detail::createCPUGenerator(3))
            .to(card_);
    test::StepSetup setup(config(), network, card_, precision, /*initial_scale=*/1024);
    setup.loss.set_checkpointing(checkpointing);
    test::FixedBatches batches(inputs, targets, kSamples);
    StepType step(setup.ops, batches, MicroBatches(kSamples, 1));
    torch::manual_seed(5);  // of noise and of what is left out
    for (int i = 0; i < kSteps; ++i) step.run(i);
    if constexpr (std::is_same_v<StepType, GraphStep>) {
      EXPECT_THAT(step.why_not(), testing::IsEmpty());
    }
    const LossMeter::Reading losses = LossMeter::read(setup.meter.state().cpu());
    EXPECT_EQ(losses.steps, kSteps);
    EXPECT_EQ(losses.first_bad, -1) << losses.first_bad_value;
    const UpdateCounters counters = Updater::read(setup.updater.counters().cpu());
    EXPECT_EQ(counters.updates + counters.skipped, kSteps);
    EXPECT_GT(counters.updates, counters.skipped);  // fp16 may have to find its scale
    return setup.state();
  }

  const torch::Device card_{torch::kCUDA, 0};
  std::optional<c10::cuda::CUDAStreamGuard> stream_;
};

TEST_P(ArchitectureGpuTest, TrainsInHalfPrecisionAndAsAGraphWithTheSameBits) {
  for (const Precision precision : {Precision::fp16, Precision::bf16}) {
    for (const int segments : {0, 2}) {
      SCOPED_TRACE(testing::Message() << to_string(precision) << ", " << segments << " segments");
      const NamedTensors eager = trained<EagerStep>(precision, {.segments = segments});
      test::expect_bit_equal(trained<GraphStep>(precision, {.segments = segments}), eager);
    }
  }
}

TEST_P(ArchitectureGpuTest, StartsAsOnTheCpu) {
  torch::manual_seed(1);
  const NamedTensors expected = state_dict(*make_network(spec()));
  NamedTensors started;
  for (const auto& [name, tensor] : state_dict(*on_card())) started.emplace_back(name, tensor.cpu());
  test::expect_bit_equal(started, expected);
}

// Half precision has 11 bits, and a network's rounding errors add up from layer to layer: most in TemporalSPAN.
TEST_P(ArchitectureGpuTest, RestoresInHalfWhatTheCpuRestores) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(1);
  const auto exact = make_network(spec()), half = on_card();
  exact->eval();
  half->eval();
  half->to(torch::kHalf);
  torch::Tensor input = pictures_for(exact->info(), 1, 4);
  const torch::Tensor expected = exact->forward(input);
  input = input.to(card_, torch::kHalf);
  if (input.dim() == 4) input = input.contiguous(torch::MemoryFormat::ChannelsLast);
  const torch::Tensor output = half->forward(input).cpu().to(torch::kFloat);
  ASSERT_EQ(output.sizes(), expected.sizes());
  const double error = (output - expected).norm().item<double>() / expected.norm().item<double>();
  RecordProperty("relative_error", std::to_string(error));
  EXPECT_LE(error, 2e-2);
}

INSTANTIATE_TEST_SUITE_P(Table, ArchitectureGpuTest, testing::ValuesIn(test::own_architectures()),
                         [](const auto& tested) { return std::string(tested.param->name); });

}  // namespace
}  // namespace reelgrad
