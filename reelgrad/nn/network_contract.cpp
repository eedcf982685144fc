#include "reelgrad/nn/network_contract.h"

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "reelgrad/nn/network_probe.h"
#include "reelgrad/nn/recognition.h"

namespace reelgrad::test {
namespace {

torch::Tensor picture(const NetworkInfo& info, std::int64_t height, std::int64_t width) {
  if (info.window == 1) return torch::rand({2, info.in_channels, height, width});
  return torch::rand({1, info.window, info.in_channels, height, width});  // several frames cost enough
}

torch::Tensor through_segments(Network& network, const torch::Tensor& input) {
  std::vector<torch::Tensor> tensors{input};
  for (const NetworkSegment& segment : network.segments()) tensors = segment(tensors);
  EXPECT_EQ(tensors.size(), 1u);
  return tensors.at(0);
}

void expect_segments_are_forward(Network& network, const torch::Tensor& input) {
  const torch::NoGradGuard no_grad;
  for (const bool training : {true, false}) {
    network.train(training);
    torch::manual_seed(2);
    const torch::Tensor whole = network.forward(input);
    torch::manual_seed(2);
    EXPECT_TRUE(torch::equal(through_segments(network, input), whole)) << (training ? "training" : "evaluation");
  }
}

void expect_stages_are_forward(Network& network, const torch::Tensor& window) {
  const auto stages = network.window_stages();
  if (!stages) return;
  const torch::NoGradGuard no_grad;
  network.eval();
  const torch::Tensor whole = network.forward(window);
  const torch::Tensor staged = through_stages(*stages, window);
  EXPECT_LE((staged - whole).abs().max().item<double>(), 1e-5 * std::max(1.0, whole.abs().max().item<double>()));
}

void expect_same_in_channels_last(Network& network, const torch::Tensor& input) {
  if (input.dim() != 4) return;
  const torch::NoGradGuard no_grad;
  network.eval();
  const torch::Tensor plain = network.forward(input);
  const torch::Tensor last = network.forward(input.contiguous(torch::MemoryFormat::ChannelsLast));
  EXPECT_LE((plain - last).abs().max().item<double>(), 1e-5 * std::max(1.0, plain.abs().max().item<double>()));
}

void expect_trains_in_float64(Network& network, const torch::Tensor& input) {
  network.train();
  network.to(torch::kFloat64);
  const torch::Tensor output = network.forward(input.to(torch::kFloat64));
  EXPECT_EQ(output.scalar_type(), torch::kFloat64);
  output.square().sum().backward();
  for (const auto& item : network.named_parameters()) {
    EXPECT_EQ(item.value().grad().defined(), item.value().requires_grad()) << item.key();
  }
  network.zero_grad();
  network.to(torch::kFloat32);
}

void expect_trains_in_half(Network& network, const torch::Tensor& input) {
  network.train();
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  torch::Tensor loss;
  try {
    loss = network.forward(input).to(torch::kFloat32).square().mean();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "under autocast: " << error.what();
  }
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  if (!loss.defined()) return;
  EXPECT_TRUE(loss.isfinite().item<bool>());
  loss.backward();
  network.zero_grad();
}

void expect_reaches_as_far_as_it_says(Network& network) {
  const NetworkInfo info = network.info();
  if (info.whole_picture) return;
  network.eval();
  const MeasuredRadius radius = measure_receptive_radius(
      network, {.scale = info.scale, .channels = info.in_channels, .window = info.window}, info.size_multiple);
  if (!radius.px || radius.faint) return;
  EXPECT_LE(*radius.px, info.receptive_radius_px);
  EXPECT_GE(*radius.px, info.receptive_radius_px / 2);  // no wild guess
}

}  // namespace

torch::Tensor through_stages(const WindowStages& stages, const torch::Tensor& window) {
  std::vector<torch::Tensor> parts;
  for (int i = 0; i + stages.frames <= window.size(1); ++i) {
    parts.push_back(stages.first(window.narrow(1, i, stages.frames).clone()));
  }
  return stages.second(parts, window);
}

void expect_keeps_the_contract(const NetworkSpec& spec) {
  torch::manual_seed(1);
  const auto network = make_network(spec);
  torch::manual_seed(1);
  const NamedTensors again = state_dict(*make_network(spec));
  for (const auto& [name, tensor] : state_dict(*network)) {
    const auto same = std::ranges::find(again, name, &NamedTensors::value_type::first);
    EXPECT_TRUE(torch::equal(tensor, same->second)) << name;
    EXPECT_TRUE(tensor.isfinite().all().item<bool>()) << name;
  }
  const NetworkInfo info = network->info();
  EXPECT_EQ(info.scale, spec.scale);
  EXPECT_EQ(info.window, spec.window);
  const int multiple = info.size_multiple;
  const torch::Tensor input =
      picture(info, 3 * multiple + (multiple == 1 ? 10 : 0), 2 * multiple + (multiple == 1 ? 7 : 0));
  {
    const torch::NoGradGuard no_grad;
    EXPECT_EQ(network->forward(input).sizes(),
              (torch::IntArrayRef{input.size(0), info.out_channels, input.size(-2) * info.scale,
                                  input.size(-1) * info.scale}));
  }
  expect_segments_are_forward(*network, input);
  expect_stages_are_forward(*network, input);
  expect_same_in_channels_last(*network, input);
  expect_trains_in_float64(*network, input);
  expect_trains_in_half(*network, input);
  expect_reaches_as_far_as_it_says(*network);
}

void expect_same_spec(const NetworkSpec& found, const NetworkSpec& wanted) {
  EXPECT_EQ(found.arch, wanted.arch);
  EXPECT_EQ(found.scale, wanted.scale);
  EXPECT_EQ(found.window, wanted.window);
  EXPECT_EQ(found.color, wanted.color);
  for (const auto& [name, value] : wanted.options) {
    const auto option = found.options.find(name);
    EXPECT_EQ(option == found.options.end() ? "missing" : option->second, value) << name;
  }
}

void expect_is_recognised(const NetworkSpec& spec) {
  const NamedTensors state = state_dict(*make_network(spec));
  const auto found = recognise(state);
  ASSERT_TRUE(found);
  expect_same_spec(found->spec, spec);
  EXPECT_NO_THROW(load_strict(*found->network, state, "the same weights"));
}

void expect_takes_a_noise_level(const NetworkSpec& spec, int sigma) {
  torch::manual_seed(1);
  const torch::NoGradGuard no_grad;
  const auto network = make_network(spec);
  network->eval();
  const NetworkInfo info = network->info();
  EXPECT_TRUE(info.noise_level);
  const int size = 2 * info.size_multiple + (info.size_multiple == 1 ? 9 : 0);
  const torch::Tensor input = picture(info, size, size);
  const auto at_level = [&](double level) {
    return network->forward(at::cat({input, at::full_like(input.narrow(-3, 0, 1), level / 255)}, -3));
  };
  const torch::Tensor output = network->forward(input);
  EXPECT_TRUE(torch::equal(output, at_level(sigma)));
  EXPECT_FALSE(torch::allclose(output, at_level(sigma + 10)));
}

std::int64_t count_trained(const NetworkSpec& spec) {
  std::int64_t values = 0;
  for (const torch::Tensor& parameter : make_network(spec)->parameters()) values += parameter.numel();
  return values;
}

std::int64_t count_values(const NetworkSpec& spec) {
  std::int64_t values = 0;
  for (const auto& [name, tensor] : state_dict(*make_network(spec))) values += tensor.numel();
  return values;
}

}  // namespace reelgrad::test
