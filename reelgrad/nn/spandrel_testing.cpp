#include "reelgrad/nn/spandrel_testing.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>

#include "reelgrad/base/files.h"
#include "reelgrad/base/process.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/nn/network_contract.h"
#include "reelgrad/nn/network_cost.h"

namespace reelgrad::test {
namespace {

using TensorMap = std::map<std::string, torch::Tensor>;

TensorMap read_map(const std::filesystem::path& file) {
  const SafetensorsFile stored = read_safetensors(file);
  return {stored.tensors.begin(), stored.tensors.end()};
}

// Also where a network starts with zeros or ones, which would hide a mistake.
void disturb(Network& network) {
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& parameter : network.parameters()) parameter.add_(at::randn_like(parameter), 0.05);
  for (torch::Tensor& buffer : network.buffers()) {
    if (buffer.is_floating_point() && buffer.dim() == 1) buffer.add_(at::rand_like(buffer), 0.1);
  }
  network.eval();  // and what follows from them
}

double relative_distance(const torch::Tensor& a, const torch::Tensor& b) {
  const double norm = b.norm().item<double>();
  return (a - b).norm().item<double>() / std::max(norm, 1e-12);
}

// Of values around 1 or, where they are larger, of the largest.
double largest_distance(const torch::Tensor& a, const torch::Tensor& b) {
  return (a - b).abs().max().item<double>() / std::max(1.0, b.abs().max().item<double>());
}

// In the mode that the network is in.
void expect_gradients(Network& network, const TensorMap& inputs, const TensorMap& expected, double tolerance) {
  network.to(torch::kFloat64);
  network.zero_grad();
  (network.forward(inputs.at("input").to(torch::kFloat64)) * inputs.at("weights").to(torch::kFloat64)).sum().backward();
  std::size_t compared = 0;
  for (const auto& item : network.named_parameters()) {
    const auto reference = expected.find(fmt::format("gradient.{}", item.key()));
    if (!item.value().grad().defined() && reference == expected.end()) continue;
    ASSERT_TRUE(reference != expected.end()) << item.key();
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_LE(relative_distance(item.value().grad(), reference->second), tolerance) << item.key();
    ++compared;
  }
  EXPECT_GT(compared, 0u);
}

// [N, C, H, W], or [N, T, C, H, W] with the same extra channels in all frames.
torch::Tensor random_input(const SpandrelCase& wanted) {
  const int colors = channels(wanted.spec.color), window = wanted.spec.window;
  if (window == 1) return torch::rand({wanted.batch, colors + wanted.extra_channels, wanted.height, wanted.width});
  const torch::Tensor extra = torch::rand({wanted.batch, 1, wanted.extra_channels, wanted.height, wanted.width});
  return at::cat({torch::rand({wanted.batch, window, colors, wanted.height, wanted.width}),
                  extra.expand({-1, window, -1, -1, -1})},
                 2);
}

// `how` is spandrel_reference.py's second argument.
void expect_agrees(const SpandrelCase& wanted, const std::string& how) {
  const TemporaryFolder folder;
  torch::manual_seed(3);
  const auto network = make_network(wanted.spec);
  disturb(*network);
  const int channels_out = channels(wanted.spec.color), scale = wanted.spec.scale;
  write_safetensors(
      folder / "input.safetensors",
      {{"input", random_input(wanted)},
       {"weights", torch::rand({wanted.batch, channels_out, wanted.height * scale, wanted.width * scale})}});
  write_safetensors(folder / "model.safetensors", state_dict(*network));

  std::vector<std::string> argv{REELGRAD_TEST_PYTHON, REELGRAD_SOURCE_DIR "/reelgrad/nn/spandrel_reference.py",
                                folder.path().string(), how};
  if (wanted.large) argv.emplace_back("--large");
  const ProcessResult result = run_process(argv, std::chrono::minutes(4));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto facts = nlohmann::json::parse(read_file(folder / "facts.json"));
  EXPECT_EQ(facts.at("id"), wanted.id);
  EXPECT_EQ(facts.at("scale"), scale);

  const TensorMap inputs = read_map(folder / "input.safetensors"), expected = read_map(folder / "output.safetensors");
  const Model ours = load_model(folder / "model.safetensors");
  expect_same_spec(ours.spec, wanted.spec);
  std::int64_t parameters = 0;
  for (const auto& [name, tensor] : state_dict(*ours.network)) parameters += tensor.numel();
  EXPECT_EQ(parameters, facts.at("values"));
  {
    const torch::NoGradGuard no_grad;
    torch::Tensor output;
    EXPECT_DOUBLE_EQ(count_flops([&] { output = ours.network->forward(inputs.at("input")); }), facts.at("flops"));
    EXPECT_LE(largest_distance(output, expected.at("output")), 1e-5);
  }
  if (!wanted.large) {
    const torch::NoGradGuard no_grad;
    const Model theirs = load_model(folder / "theirs.safetensors");
    EXPECT_LE(largest_distance(theirs.network->forward(inputs.at("input")), expected.at("output_of_theirs")), 1e-5);
  }
  if (wanted.renames) return;
  NetworkSpec spec = wanted.spec;
  spec.options.insert(wanted.untold.begin(), wanted.untold.end());
  const auto trained = make_network(spec);
  load_strict(*trained, state_dict(*ours.network), "the weights");
  trained->train(!wanted.drops_paths);
  expect_gradients(*trained, inputs, expected, wanted.gradient_tolerance);
}

}  // namespace

void expect_agrees_with_spandrel(const SpandrelCase& wanted) {
  expect_agrees(wanted, wanted.renames ? "--renames" : "--strict");
}

void expect_agrees_with_reference(const SpandrelCase& wanted, const std::string& script) {
  expect_agrees(wanted, REELGRAD_SOURCE_DIR "/reelgrad/nn/archs/" + script);
}

}  // namespace reelgrad::test
