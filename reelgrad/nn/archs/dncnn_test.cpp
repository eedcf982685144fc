#include <gmock/gmock.h>
#include <torch/torch.h>

#include "reelgrad/nn/architectures.h"
#include "reelgrad/nn/network_contract.h"
#include "reelgrad/nn/spandrel_testing.h"

namespace reelgrad {
namespace {

// spandrel knows no network of fewer convolutions: 4 with batch norms, 8 without.
NetworkSpec small_dncnn(bool batch_norm, bool noise_map, NetworkColor color = NetworkColor::rgb) {
  return {.arch = "dncnn",
          .scale = 1,
          .color = color,
          .options = {{"features", "8"},
                      {"depth", batch_norm ? "5" : "8"},
                      {"batch_norm", batch_norm ? "true" : "false"},
                      {"noise_map", noise_map ? "true" : "false"}}};
}

TEST(DncnnSpandrel, BatchNorm) {
  test::expect_agrees_with_spandrel({.spec = small_dncnn(true, false, NetworkColor::gray), .id = "DnCNN"});
}

TEST(DncnnSpandrel, Plain) {
  test::expect_agrees_with_spandrel({.spec = small_dncnn(false, false), .id = "DnCNN"});
}

TEST(DncnnSpandrel, NoiseMap) {
  test::expect_agrees_with_spandrel({.spec = small_dncnn(false, true), .id = "DnCNN", .extra_channels = 1});
}

TEST(Dncnn, KeepsTheContract) {
  for (const bool batch_norm : {true, false}) {
    for (const bool noise_map : {true, false}) {
      SCOPED_TRACE(testing::Message() << "batch_norm " << batch_norm << ", noise_map " << noise_map);
      test::expect_keeps_the_contract(small_dncnn(batch_norm, noise_map));
    }
  }
}

TEST(Dncnn, IsRecognisedWithEveryOption) {
  for (const bool batch_norm : {true, false}) {
    for (const bool noise_map : {true, false}) {
      for (const char* depth : {"3", "4", "17", "20"}) {
        NetworkSpec spec = small_dncnn(batch_norm, noise_map, noise_map ? NetworkColor::rgb : NetworkColor::gray);
        spec.options["depth"] = depth;
        test::expect_is_recognised(spec);
      }
    }
  }
}

// Layers of the paper, each with a bias: 17 for gray pictures and known noise, 20 for colour and any.
TEST(Dncnn, ParameterCountsAreThePapers) {
  const auto count = [](const char* depth, NetworkColor color) {
    return test::count_trained(
        {.arch = "dncnn", .scale = 1, .color = color, .options = {{"depth", depth}, {"batch_norm", "false"}}});
  };
  EXPECT_EQ(count("17", NetworkColor::gray), 64 * 9 + 64 + 15 * (64 * 64 * 9 + 64) + 64 * 9 + 1);
  EXPECT_EQ(count("20", NetworkColor::rgb), 668'227);
}

TEST(Dncnn, StartsOrthogonal) {
  torch::manual_seed(7);
  const auto network = make_network(small_dncnn(true, false));
  int convs = 0;
  for (const auto& item : network->named_parameters()) {
    if (item.value().dim() != 4) continue;
    const torch::Tensor rows = item.value().detach().flatten(1);
    const torch::Tensor products = rows.matmul(rows.t());
    EXPECT_LE((products - 0.04 * torch::eye(rows.size(0))).abs().max().item<double>(), 1e-6) << item.key();
    ++convs;
  }
  EXPECT_EQ(convs, 5);
}

TEST(Dncnn, TakesANoiseLevelOrItsOwn) {
  NetworkSpec spec = small_dncnn(false, true);
  spec.options["sigma"] = "50";
  test::expect_takes_a_noise_level(spec, 50);
}

}  // namespace
}  // namespace reelgrad
