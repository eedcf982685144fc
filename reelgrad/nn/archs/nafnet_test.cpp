#include <gmock/gmock.h>
#include <torch/torch.h>

#include "reelgrad/base/error.h"
#include "reelgrad/nn/architectures.h"
#include "reelgrad/nn/network_contract.h"
#include "reelgrad/nn/spandrel_testing.h"

namespace reelgrad {
namespace {

NetworkSpec nafnet(const std::string& width, const std::string& encoders, const std::string& middle,
                   const std::string& decoders, NetworkColor color = NetworkColor::rgb) {
  return {.arch = "nafnet",
          .scale = 1,
          .color = color,
          .options = {
              {"width", width}, {"enc_blk_nums", encoders}, {"middle_blk_num", middle}, {"dec_blk_nums", decoders}}};
}

TEST(NafnetSpandrel, TwoLevels) {
  test::expect_agrees_with_spandrel({.spec = nafnet("6", "1,2", "2", "1,3"), .id = "NAFNet"});
}

TEST(NafnetSpandrel, GrayOfFourLevelsInAnySize) {
  test::expect_agrees_with_spandrel(
      {.spec = nafnet("4", "1,1,1,2", "1", "2,1,1,1", NetworkColor::gray), .id = "NAFNet", .height = 19, .width = 33});
}

TEST(Nafnet, KeepsTheContract) {
  test::expect_keeps_the_contract(nafnet("4", "1,2", "1", "2,1"));
  test::expect_keeps_the_contract(nafnet("4", "1", "2", "1", NetworkColor::gray));
}

TEST(Nafnet, IsRecognisedWithEveryOption) {
  for (const NetworkColor color : {NetworkColor::rgb, NetworkColor::gray}) {
    test::expect_is_recognised(nafnet("4", "1,2", "1", "2,1", color));
    test::expect_is_recognised(nafnet("6", "3", "2", "1", color));
    test::expect_is_recognised(nafnet("2", "1,1,1,11", "12", "1,1,1,1", color));
  }
}

// Of the authors' networks, as spandrel builds them; those for SIDD are the larger ones of each width.
TEST(Nafnet, ParameterCountsArePublished) {
  EXPECT_EQ(test::count_trained({.arch = "nafnet", .scale = 1}), 17'111'907);
  EXPECT_EQ(test::count_trained(nafnet("64", "1,1,1,28", "1", "1,1,1,1")), 67'888'835);
  EXPECT_EQ(test::count_trained(nafnet("32", "2,2,4,8", "12", "2,2,2,2")), 29'159'715);
  EXPECT_EQ(test::count_trained(nafnet("64", "2,2,4,8", "12", "2,2,2,2")), 115'982'915);
}

// All that blocks add has a weight of 0.
TEST(Nafnet, BlocksStartByAddingNothing) {
  torch::manual_seed(1);
  const NetworkSpec spec = nafnet("4", "1", "1", "1");
  const auto network = make_network(spec);
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : state_dict(*network)) {
    if (name.ends_with("beta") || name.ends_with("gamma")) {
      EXPECT_EQ(tensor.abs().max().item<float>(), 0) << name;
    }
    if (name.starts_with("ups.")) tensor.zero_();  // what is left is intro, then ending
  }
  const NamedTensors state = state_dict(*network);
  const std::map<std::string, torch::Tensor> tensors(state.begin(), state.end());
  const auto conv = [&](const torch::Tensor& x, const std::string& key) {
    return at::conv2d(x, tensors.at(key + ".weight"), tensors.at(key + ".bias"), 1, 1);
  };
  const torch::Tensor input = torch::rand({1, 3, 4, 6});
  EXPECT_LE((network->forward(input) - input - conv(conv(input, "intro"), "ending")).abs().max().item<double>(), 1e-6);
}

TEST(Nafnet, RefusesUnevenLevels) {
  try {
    make_network(nafnet("4", "1,1", "1", "1"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_THAT(error.what(), testing::HasSubstr("enc_blk_nums of 2 levels and dec_blk_nums of 1"));
  }
}

TEST(Nafnet, SeesTheWholePicture) {
  EXPECT_TRUE(make_network(nafnet("4", "1", "1", "1"))->info().whole_picture);
}

}  // namespace
}  // namespace reelgrad
