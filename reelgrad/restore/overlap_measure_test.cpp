#include "reelgrad/restore/overlap_measure.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>

#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/nn/architectures.h"
#include "reelgrad/restore/restorer.h"
#include "reelgrad/restore/test_networks.h"

namespace reelgrad {
namespace {

std::shared_ptr<Network> compact(int convs) {
  torch::manual_seed(3);
  NetworkSpec spec;
  spec.options = {{"features", "16"}, {"convs", std::to_string(convs)}};
  return make_network(spec);
}

class OverlapTest : public testing::Test {
 protected:
  void SetUp() override { setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1); }
  void TearDown() override { unsetenv("XDG_CACHE_HOME"); }
  test::TemporaryFolder folder_;
};

torch::Tensor restored(const std::shared_ptr<Network>& network, const torch::Tensor& picture, int tile, int overlap) {
  RestoreOptions options{.tile_px = tile, .overlap_px = overlap};
  return Restorer(network, NetworkSpec{}, options).run(picture);
}

TEST_F(OverlapTest, ItIsSmallerThanTheRadiusAndKeepsTilesWithinHalfACode) {
  torch::manual_seed(5);
  const torch::Tensor picture = torch::rand({3, 150, 140});
  for (const int convs : {8, 16}) {
    const auto network = compact(convs);
    network->eval();
    const std::optional<int> overlap = measure_overlap(*network);
    ASSERT_TRUE(overlap);
    EXPECT_LT(*overlap, network->info().receptive_radius_px);
    EXPECT_GT(*overlap, 0);
    const torch::Tensor whole = restored(network, picture, 0, 0);
    const auto gap = [&](int px) {
      return 255 * (restored(network, picture, 48, px) - whole).abs().max().item<double>();
    };
    EXPECT_LT(gap(*overlap), 0.5) << convs;
    EXPECT_GT(gap(0), 0.5) << "the test can fail";
  }
}

TEST_F(OverlapTest, ANetworkOfSinglePixelsNeedsNone) {
  EXPECT_EQ(measure_overlap(*std::make_shared<Enlarger>(2, 3)), 0);
}

TEST_F(OverlapTest, WhatAveragesOverThePictureHasNone) {
  class Averager : public ThreeConvs {
   public:
    torch::Tensor forward(torch::Tensor x) override { return ThreeConvs::forward(x) + x.mean({2, 3}, true); }
    NetworkInfo info() const override {
      NetworkInfo info = ThreeConvs::info();
      info.whole_picture = true;
      return info;
    }
  };
  EXPECT_FALSE(measure_overlap(*std::make_shared<Averager>()));
}

TEST_F(OverlapTest, IsKeptUnderTheWeights) {
  const auto a = compact(4), b = compact(4), c = compact(5);
  EXPECT_EQ(weights_hash(*a), weights_hash(*b));
  EXPECT_NE(weights_hash(*a), weights_hash(*c));
  EXPECT_FALSE(known_overlap(weights_hash(*a)));
  restored(a, torch::rand({3, 90, 90}), 40, RestoreOptions::kMeasured);
  EXPECT_EQ(known_overlap(weights_hash(*b)), measure_overlap(*a));
  keep_overlap(weights_hash(*b), 24);
  EXPECT_EQ(known_overlap(weights_hash(*a)), 24);
}

}  // namespace
}  // namespace reelgrad
