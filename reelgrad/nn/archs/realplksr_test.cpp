#include <gmock/gmock.h>
#include <torch/torch.h>

#include "reelgrad/base/error.h"
#include "reelgrad/nn/architectures.h"
#include "reelgrad/nn/network_contract.h"
#include "reelgrad/nn/spandrel_testing.h"

namespace reelgrad {
namespace {

using Options = std::map<std::string, std::string>;

NetworkSpec small_realplksr(int scale, const Options& changed = {}, NetworkColor color = NetworkColor::rgb) {
  NetworkSpec spec{.arch = "realplksr",
                   .scale = scale,
                   .color = color,
                   .options = {{"features", "16"},
                               {"blocks", "2"},
                               {"kernel", "7"},
                               {"kernel_features", "0"},
                               {"attention", "true"},
                               {"norm", "layer"},
                               {"upsampler", "pixelshuffle"}}};
  for (const auto& [name, value] : changed) spec.options[name] = value;
  return spec;
}

TEST(RealPlksrSpandrel, FourTimes) {
  test::expect_agrees_with_spandrel(
      {.spec = small_realplksr(4, {{"features", "64"}, {"kernel", "17"}}), .id = "PLKSR"});
}

TEST(RealPlksrSpandrel, GroupNormTwice) {
  test::expect_agrees_with_spandrel({.spec = small_realplksr(2, {{"norm", "group"}}), .id = "PLKSR"});
}

TEST(RealPlksrSpandrel, DySampleTwice) {
  test::expect_agrees_with_spandrel({.spec = small_realplksr(2, {{"upsampler", "dysample"}}), .id = "PLKSR"});
}

TEST(RealPlksrSpandrel, DySampleThreeTimesWithoutAttention) {
  test::expect_agrees_with_spandrel(
      {.spec = small_realplksr(
           3, {{"upsampler", "dysample"}, {"attention", "false"}, {"norm", "group"}, {"kernel_features", "8"}}),
       .id = "PLKSR"});
}

TEST(RealPlksrSpandrel, DySampleOnce) {
  test::expect_agrees_with_spandrel({.spec = small_realplksr(1, {{"upsampler", "dysample"}}), .id = "PLKSR"});
}

TEST(RealPlksr, KeepsTheContract) {
  for (const Options& options : {Options{}, Options{{"norm", "group"}, {"attention", "false"}},
                                 Options{{"upsampler", "dysample"}}, Options{{"kernel_features", "16"}}}) {
    SCOPED_TRACE(testing::PrintToString(options));
    test::expect_keeps_the_contract(small_realplksr(2, options));
  }
}

TEST(RealPlksr, IsRecognisedWithEveryOption) {
  for (const int scale : {1, 2, 3, 4, 8}) {
    for (const char* norm : {"layer", "group"}) {
      for (const char* upsampler : {"pixelshuffle", "dysample"}) {
        const Options options{{"norm", norm}, {"upsampler", upsampler}};
        test::expect_is_recognised(small_realplksr(scale, options));
        test::expect_is_recognised(small_realplksr(scale, options, NetworkColor::gray));
      }
    }
  }
  test::expect_is_recognised(small_realplksr(2, {{"attention", "false"}, {"kernel", "5"}, {"blocks", "1"}}));
  test::expect_is_recognised(small_realplksr(2, {{"kernel_features", "6"}, {"features", "12"}}));
}

// Of spandrel's modules.
TEST(RealPlksr, ParameterCountsArePublished) {
  const auto count = [](const Options& options) {
    return test::count_values({.arch = "realplksr", .scale = 4, .options = options});
  };
  EXPECT_EQ(count({}), 7'389'680);
  EXPECT_EQ(count({{"norm", "group"}}), 7'389'680);
  EXPECT_EQ(count({{"upsampler", "dysample"}}) - 128, 7'402'243);  // less where DySample starts
}

TEST(RealPlksr, RefusesWhatCannotBe) {
  for (const Options& options :
       {Options{{"kernel", "8"}}, Options{{"kernel_features", "17"}}, Options{{"features", "6"}, {"norm", "group"}}}) {
    EXPECT_THROW(make_network(small_realplksr(2, options)), Error) << testing::PrintToString(options);
  }
}

// In half precision there are fewer numbers than columns in a picture: DySample must not look in them.
TEST(RealPlksr, DySampleFindsItsPlacesInWidePicturesOfBfloat16) {
  torch::manual_seed(5);
  const torch::NoGradGuard no_grad;
  const auto network = make_network(small_realplksr(2, {{"upsampler", "dysample"}}));
  network->eval();
  const torch::Tensor input = torch::rand({1, 3, 2, 1200});
  const torch::Tensor full = network->forward(input);
  network->to(torch::kBFloat16);
  const torch::Tensor half = network->forward(input.to(torch::kBFloat16)).to(torch::kFloat32);
  EXPECT_LE((full - half).abs().mean().item<double>(), 0.01);
}

}  // namespace
}  // namespace reelgrad
