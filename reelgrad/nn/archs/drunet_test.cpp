#include <gmock/gmock.h>
#include <torch/torch.h>

#include "reelgrad/nn/architectures.h"
#include "reelgrad/nn/network_contract.h"
#include "reelgrad/nn/spandrel_testing.h"

namespace reelgrad {
namespace {

// spandrel knows no network of fewer than 2 blocks where the way up begins with one convolution.
NetworkSpec small_drunet(const std::string& downsample, const std::string& upsample, bool noise_map = true,
                         NetworkColor color = NetworkColor::rgb) {
  return {.arch = "drunet",
          .scale = 1,
          .color = color,
          .options = {{"features", "4"},
                      {"features2", "6"},
                      {"features3", "8"},
                      {"features4", "12"},
                      {"blocks", "2"},
                      {"downsample", downsample},
                      {"upsample", upsample},
                      {"noise_map", noise_map ? "true" : "false"}}};
}

TEST(DrunetSpandrel, Strided) {
  test::expect_agrees_with_spandrel({.spec = small_drunet("strideconv", "convtranspose"),
                                     .id = "DRUNet",
                                     .height = 24,
                                     .width = 16,
                                     .extra_channels = 1});
}

TEST(DrunetSpandrel, GrayAverageAndShuffle) {
  test::expect_agrees_with_spandrel({.spec = small_drunet("avgpool", "pixelshuffle", true, NetworkColor::gray),
                                     .id = "DRUNet",
                                     .height = 24,
                                     .width = 16,
                                     .extra_channels = 1});
}

TEST(DrunetSpandrel, NearestWithoutNoiseMap) {
  test::expect_agrees_with_spandrel(
      {.spec = small_drunet("strideconv", "upconv", /*noise_map=*/false), .id = "DRUNet", .height = 24, .width = 16});
}

TEST(Drunet, KeepsTheContract) {
  for (const auto& [down, up] : {std::pair{"strideconv", "convtranspose"}, std::pair{"avgpool", "upconv"},
                                 std::pair{"avgpool", "pixelshuffle"}}) {
    SCOPED_TRACE(up);
    NetworkSpec spec = small_drunet(down, up);
    spec.options.insert_or_assign("blocks", "1");  // its reach is within what can be measured
    test::expect_keeps_the_contract(spec);
  }
}

TEST(Drunet, IsRecognisedWithEveryOption) {
  for (const char* down : {"strideconv", "avgpool"}) {
    for (const char* up : {"convtranspose", "upconv", "pixelshuffle"}) {
      for (const bool noise_map : {true, false}) {
        test::expect_is_recognised(small_drunet(down, up, noise_map));
        test::expect_is_recognised(small_drunet(down, up, noise_map, NetworkColor::gray));
      }
    }
  }
}

// Of spandrel's modules, which are the paper's 32.6 million.
TEST(Drunet, ParameterCountsArePublished) {
  EXPECT_EQ(test::count_trained({.arch = "drunet", .scale = 1}), 32'640'960);
  EXPECT_EQ(test::count_trained({.arch = "drunet", .scale = 1, .color = NetworkColor::gray}), 32'638'656);
}

TEST(Drunet, TakesANoiseLevelOrItsOwn) {
  NetworkSpec spec = small_drunet("strideconv", "convtranspose");
  spec.options["sigma"] = "25";
  test::expect_takes_a_noise_level(spec, 25);
}

}  // namespace
}  // namespace reelgrad
