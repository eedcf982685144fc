#include <gmock/gmock.h>
#include <torch/torch.h>

#include <filesystem>
#include <iterator>
#include <optional>

#include "reelgrad/base/process.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/nn/architectures.h"
#include "reelgrad/nn/network_contract.h"
#include "reelgrad/nn/spandrel_testing.h"

namespace reelgrad {
namespace {

struct Variant {
  std::string name;
  NetworkSpec spec;
};

std::vector<Variant> variants() {
  std::vector<Variant> all;
  for (const char* activation : {"prelu", "relu", "leakyrelu"}) {
    for (int scale = 1; scale <= 4; ++scale) {
      for (const NetworkColor color : {NetworkColor::rgb, NetworkColor::gray}) {
        const std::string name =
            std::string(activation) + "-" + std::to_string(scale) + "x" + std::to_string(channels(color));
        all.push_back({name,
                       {.scale = scale,
                        .color = color,
                        .options = {{"features", "12"}, {"convs", "3"}, {"activation", activation}}}});
      }
    }
  }
  return all;
}

// Writes every variant's weights once and has PyTorch run them.
class CompactReferenceTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_.emplace();
    torch::manual_seed(1);
    write_safetensors(*folder_ / "input.safetensors",
                      {{"channels1", torch::rand({2, 1, 9, 14})}, {"channels3", torch::rand({2, 3, 9, 14})}});
    for (const Variant& variant : variants()) {
      const auto network = make_network(variant.spec);
      torch::NoGradGuard no_grad;
      for (const auto& [name, slope] : state_dict(*network)) {
        if (slope.dim() == 1) slope.uniform_(-0.5, 0.5);  // distinct slopes, both signs
      }
      write_safetensors(model_file(variant), state_dict(*network), model_metadata(variant.spec));
    }
    const ProcessResult result = run_process(
        {REELGRAD_TEST_PYTHON, REELGRAD_SOURCE_DIR "/reelgrad/nn/archs/compact_reference.py", folder_->path().string()},
        std::chrono::minutes(2));
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static std::filesystem::path model_file(const Variant& variant) {
    return *folder_ / (variant.name + ".model.safetensors");
  }

  static std::map<std::string, torch::Tensor> read(const std::string& name) {
    const SafetensorsFile file = read_safetensors(*folder_ / name);
    return {file.tensors.begin(), file.tensors.end()};
  }

  inline static std::optional<test::TemporaryFolder> folder_;
};

double largest_difference(const torch::Tensor& a, const torch::Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  return (a - b).abs().max().item<double>();
}

TEST_F(CompactReferenceTest, ForwardIsPyTorchsAndSpandrels) {
  const torch::NoGradGuard no_grad;
  const auto inputs = read("input.safetensors");
  for (const Variant& variant : variants()) {
    const Model model = load_model(model_file(variant));
    const torch::Tensor ours =
        model.network->forward(inputs.at("channels" + std::to_string(channels(variant.spec.color))));
    const auto reference = read(variant.name + ".output.safetensors");
    EXPECT_LE(largest_difference(ours, reference.at("pytorch")), 1e-6) << variant.name;
    if (variant.spec.options.at("activation") == "prelu") {
      EXPECT_LE(largest_difference(ours, reference.at("spandrel")), 1e-5) << variant.name;
    }
  }
}

TEST_F(CompactReferenceTest, IsInitialisedAsPyTorchDoes) {
  torch::manual_seed(7);
  const auto network = make_network({.scale = 2, .options = {{"features", "8"}, {"convs", "2"}}});
  const auto reference = read("init.safetensors");
  const NamedTensors ours = state_dict(*network);
  ASSERT_EQ(ours.size(), reference.size());
  for (const auto& [name, tensor] : ours) EXPECT_TRUE(torch::equal(tensor, reference.at(name))) << name;
}

TEST(CompactSpandrel, RgbTwice) {
  test::expect_agrees_with_spandrel(
      {.spec = {.scale = 2, .options = {{"features", "12"}, {"convs", "3"}}}, .id = "Compact"});
}

TEST(CompactSpandrel, GrayOnce) {
  test::expect_agrees_with_spandrel(
      {.spec = {.scale = 1, .color = NetworkColor::gray, .options = {{"features", "24"}, {"convs", "8"}}},
       .id = "Compact"});
}

TEST(Compact, KeysAreThoseOfTheCommunity) {
  std::vector<std::string> keys;
  for (const auto& [name, tensor] : state_dict(*make_network({.options = {{"features", "4"}, {"convs", "1"}}}))) {
    keys.push_back(name);
  }
  EXPECT_THAT(keys, testing::UnorderedElementsAre("body.0.weight", "body.0.bias", "body.1.weight", "body.2.weight",
                                                  "body.2.bias", "body.3.weight", "body.4.weight", "body.4.bias"));
}

TEST(Compact, ParameterCountsArePublished) {
  const auto count = [](const char* features, const char* convs) {
    std::int64_t total = 0;
    const auto network = make_network({.scale = 4, .options = {{"features", features}, {"convs", convs}}});
    for (const torch::Tensor& parameter : network->parameters()) total += parameter.numel();
    return total;
  };
  EXPECT_EQ(count("64", "16"), 621'424);
  EXPECT_EQ(count("64", "8"), 325'488);
  EXPECT_EQ(count("24", "8"), 52'968);
}

TEST(Compact, ReachesAsFarAsItSays) {
  const auto network =
      make_network({.scale = 1, .options = {{"features", "4"}, {"convs", "2"}, {"activation", "relu"}}});
  torch::NoGradGuard no_grad;
  for (torch::Tensor& parameter : network->parameters()) parameter.fill_(0.1);  // no path is closed by a ReLU
  torch::Tensor input = torch::zeros({1, 3, 1, 31});
  input = input.expand({1, 3, 31, 31}).clone();
  const torch::Tensor before = network->forward(input);
  input.index_put_({0, 0, 15, 15}, 1);
  const torch::Tensor changed = (network->forward(input) - before).abs().flatten(0, 1).sum(0).gt(0).any(0);
  const int radius = network->info().receptive_radius_px;
  EXPECT_EQ(radius, 4);
  EXPECT_EQ(changed.sum().item<int>(), 2 * radius + 1);
  EXPECT_TRUE(changed[15 - radius].item<bool>() && changed[15 + radius].item<bool>());
}

TEST(Compact, KeepsTheContract) {
  for (const char* activation : {"prelu", "relu", "leakyrelu"}) {
    SCOPED_TRACE(activation);
    test::expect_keeps_the_contract(
        {.scale = 3, .options = {{"features", "4"}, {"convs", "3"}, {"activation", activation}}});
  }
}

// A network without cuts of its own, as users write them.
TEST(Network, IsOneSegmentByDefault) {
  class Doubled : public Network {
    torch::Tensor forward(torch::Tensor input) override { return input * 2; }
    NetworkInfo info() const override { return {}; }
  };
  Doubled network;
  const std::vector<NetworkSegment> segments = static_cast<Network&>(network).segments();
  ASSERT_EQ(segments.size(), 1U);
  const std::vector<torch::Tensor> tensors = segments[0]({torch::ones({1})});
  ASSERT_EQ(tensors.size(), 1U);
  EXPECT_EQ(tensors[0].item<float>(), 2);
}

}  // namespace
}  // namespace reelgrad
