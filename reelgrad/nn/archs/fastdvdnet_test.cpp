#include <gmock/gmock.h>
#include <torch/torch.h>

#include "reelgrad/base/error.h"
#include "reelgrad/nn/architectures.h"
#include "reelgrad/nn/network_contract.h"
#include "reelgrad/nn/spandrel_testing.h"

namespace reelgrad {
namespace {

NetworkSpec fastdvdnet_spec(const char* features, NetworkColor color = NetworkColor::rgb) {
  return {.arch = "fastdvdnet", .scale = 1, .window = 5, .color = color, .options = {{"features", features}}};
}

TEST(FastDvdnetReference, AsPublished) {
  test::expect_agrees_with_reference({.spec = fastdvdnet_spec("32"), .id = "fastdvdnet", .extra_channels = 1},
                                     "fastdvdnet_reference.py");
}

TEST(FastDvdnetReference, SmallAndGray) {
  test::expect_agrees_with_reference(
      {.spec = fastdvdnet_spec("6", NetworkColor::gray), .id = "fastdvdnet", .extra_channels = 1},
      "fastdvdnet_reference.py");
}

TEST(FastDvdnet, KeepsTheContract) {
  test::expect_keeps_the_contract(fastdvdnet_spec("4"));
}

TEST(FastDvdnet, IsRecognised) {
  test::expect_is_recognised(fastdvdnet_spec("32"));
  test::expect_is_recognised(fastdvdnet_spec("8", NetworkColor::gray));
}

TEST(FastDvdnet, TakesANoiseLevel) {
  NetworkSpec spec = fastdvdnet_spec("8");
  test::expect_takes_a_noise_level(spec, 25);
  spec.options["sigma"] = "50";
  test::expect_takes_a_noise_level(spec, 50);
}

TEST(FastDvdnet, ItsStagesAreTheWholeBitForBit) {
  torch::manual_seed(2);
  const torch::NoGradGuard no_grad;
  const auto network = make_network(fastdvdnet_spec("8"));
  network->eval();
  const std::optional<WindowStages> stages = network->window_stages();
  ASSERT_TRUE(stages);
  for (const int channels : {3, 4}) {  // without and with a noise level
    const torch::Tensor window = torch::rand({2, 5, channels, 24, 20});
    EXPECT_TRUE(torch::equal(test::through_stages(*stages, window), network->forward(window))) << channels;
  }
}

TEST(FastDvdnet, TakesFiveFrames) {
  NetworkSpec spec = fastdvdnet_spec("8");
  spec.window = 3;
  EXPECT_THROW(make_network(spec), Error);
}

// 2.5 million in the paper's table.
TEST(FastDvdnet, ParameterCountIsPublished) {
  EXPECT_EQ(test::count_trained(fastdvdnet_spec("32")), 2'482'098);
}

TEST(FastDvdnet, StartsAsTheReferenceDoes) {
  torch::manual_seed(3);
  const auto network = make_network(fastdvdnet_spec("32"));
  const torch::Tensor weight = network->named_parameters()["temp2.downc1.convblock.3.convblock.0.weight"];
  EXPECT_NEAR(weight.std().item<double>(), std::sqrt(2.0 / (128 * 9)), 1e-3);
  EXPECT_NEAR(weight.mean().item<double>(), 0, 1e-3);
  const torch::Tensor each_frame = network->named_parameters()["temp1.inc.convblock.0.weight"];
  EXPECT_NEAR(each_frame.std().item<double>(), std::sqrt(2.0 / (4 * 9)), 0.02);
}

}  // namespace
}  // namespace reelgrad
