// What is done around the network, against PyTorch's own functions.
#include "reelgrad/restore/tile_function.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "reelgrad/restore/enlarge.h"
#include "reelgrad/restore/test_networks.h"

namespace reelgrad {
namespace {

TileFunction function_of(std::shared_ptr<Network> network) {
  network->eval();
  const NetworkInfo info = network->info();
  return {.network = std::move(network), .info = info};
}

double largest_gap(const torch::Tensor& a, const torch::Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  return (a - b).abs().max().item<double>();
}

class TileFunctionTest : public testing::Test {
 protected:
  const torch::NoGradGuard no_grad_;
};

TEST_F(TileFunctionTest, EnsembleIsTheMeanOverEightTurns) {
  auto network = std::make_shared<ThreeConvs>();
  TileFunction function = function_of(network);
  torch::manual_seed(2);
  const torch::Tensor x = torch::rand({2, 3, 20, 12});
  torch::Tensor sum = torch::zeros_like(x);
  for (int quarter = 0; quarter < 4; ++quarter) {
    for (const bool flip : {false, true}) {
      torch::Tensor turned = torch::rot90(flip ? x.flip(3) : x, quarter, {2, 3});
      torch::Tensor back = torch::rot90(network->forward(turned), -quarter, {2, 3});
      sum += flip ? back.flip(3) : back;
    }
  }
  EXPECT_GT(largest_gap(function(x).squeeze(1), sum / 8), 1e-3);
  function.ensemble = true;
  EXPECT_LT(largest_gap(function(x).squeeze(1), sum / 8), 1e-6);
}

TEST_F(TileFunctionTest, StrengthBlendsWithTheInputEnlarged) {
  const torch::Tensor x = torch::rand({1, 3, 9, 8});
  TileFunction function = function_of(std::make_shared<Enlarger>(2, 3));
  const torch::Tensor full = function(x).squeeze(1);
  function.strength = 0;
  EXPECT_LT(largest_gap(function(x).squeeze(1), enlarge_bicubic(x, 2)), 1e-6);
  function.strength = 0.25;
  EXPECT_LT(largest_gap(function(x).squeeze(1), 0.25 * full + 0.75 * enlarge_bicubic(x, 2)), 1e-6);
  TileFunction same_size = function_of(std::make_shared<ThreeConvs>());
  same_size.strength = 0;
  EXPECT_EQ(largest_gap(same_size(x).squeeze(1), x), 0);
}

TEST_F(TileFunctionTest, AGrayNetworkLeavesChromaToTheEnlargement) {
  const torch::Tensor x = torch::rand({1, 3, 9, 8});
  TileFunction function = function_of(std::make_shared<Enlarger>(2, 1));
  function.enlarges_chroma = true;
  function.strength = 0.5;
  const torch::Tensor y = function(x).squeeze(1), large = enlarge_bicubic(x, 2);
  const torch::Tensor luma = x.narrow(1, 0, 1).repeat_interleave(2, 2).repeat_interleave(2, 3);
  EXPECT_LT(largest_gap(y.narrow(1, 1, 2), large.narrow(1, 1, 2)), 1e-6);
  EXPECT_LT(largest_gap(y.narrow(1, 0, 1), 0.5 * luma + 0.5 * large.narrow(1, 0, 1)), 1e-6);
}

TEST_F(TileFunctionTest, StagesGiveTheSameWithWhatGoesAroundThem) {
  const torch::Tensor x = torch::rand({1, 5, 4, 9, 8});
  TileFunction function = function_of(std::make_shared<StagedMixer>(/*noise_level=*/true));
  function.stages = function.network->window_stages();
  const auto in_stages = [&](const torch::Tensor& tiles) {
    std::vector<torch::Tensor> parts;
    for (int i = 0; i < function.parts(); ++i) parts.push_back(function.first(tiles.narrow(1, i, 3)));
    EXPECT_EQ(parts.size(), 3U);
    return function.second(parts, tiles);
  };
  for (const double strength : {1.0, 0.25}) {
    function.strength = strength;
    EXPECT_TRUE(torch::equal(in_stages(x), function(x))) << strength;
  }
}

// Keys' cubic with a = -1/2.
TEST_F(TileFunctionTest, BicubicHasCatmullRomsWeights) {
  torch::Tensor x = torch::zeros({1, 1, 1, 9});
  x[0][0][0][4] = 1;
  const torch::Tensor y = enlarge_bicubic(x, 2)[0][0][0];
  const auto keys = [](double t) {
    t = std::abs(t);
    return t < 1 ? 1.5 * t * t * t - 2.5 * t * t + 1 : t < 2 ? -0.5 * t * t * t + 2.5 * t * t - 4 * t + 2 : 0.0;
  };
  for (int i = 0; i < 18; ++i) EXPECT_NEAR(y[i].item<double>(), keys((i + 0.5) / 2 - 0.5 - 4), 1e-6) << i;
  EXPECT_EQ(enlarge_bicubic(x, 1).data_ptr(), x.data_ptr());
  EXPECT_NEAR(enlarge_bicubic(torch::full({1, 1, 1, 1}, 0.5), 3).min().item<double>(), 0.5, 1e-6);
}

}  // namespace
}  // namespace reelgrad
