#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>

#include "reelgrad/base/error.h"
#include "reelgrad/nn/architectures.h"
#include "reelgrad/nn/network_contract.h"
#include "reelgrad/nn/spandrel_testing.h"

namespace reelgrad {
namespace {

NetworkSpec small_temporalspan(int scale, NetworkColor color = NetworkColor::rgb) {
  return {.arch = "temporalspan",
          .scale = scale,
          .window = 5,
          .color = color,
          .options = {{"features", "16"}, {"frame_features", "4"}}};
}

TEST(TemporalSpanReference, Twice) {
  test::expect_agrees_with_reference({.spec = small_temporalspan(2), .id = "temporalspan"},
                                     "temporalspan_reference.py");
}

TEST(TemporalSpanReference, GrayOnce) {
  test::expect_agrees_with_reference({.spec = small_temporalspan(1, NetworkColor::gray), .id = "temporalspan"},
                                     "temporalspan_reference.py");
}

TEST(TemporalSpanReference, FourTimesAsTraiNNerTrainsIt) {
  test::expect_agrees_with_reference({.spec = {.arch = "temporalspan",
                                               .scale = 4,
                                               .window = 5,
                                               .options = {{"features", "48"}, {"frame_features", "12"}}},
                                      .id = "temporalspan"},
                                     "temporalspan_reference.py");
}

TEST(TemporalSpan, KeepsTheContract) {
  test::expect_keeps_the_contract(small_temporalspan(2));
}

TEST(TemporalSpan, IsRecognisedWithEveryOption) {
  for (const int scale : {1, 2, 3, 4, 8}) {
    test::expect_is_recognised(small_temporalspan(scale));
    test::expect_is_recognised(small_temporalspan(scale, NetworkColor::gray));
  }
}

TEST(TemporalSpan, SaysWhatItTakes) {
  NetworkSpec spec = small_temporalspan(2);
  EXPECT_EQ(make_network(spec)->info().window, 5);
  EXPECT_TRUE(make_network(spec)->info().whole_picture);
  spec.window = 1;
  EXPECT_THROW(make_network(spec), Error);
  spec = small_temporalspan(2);
  spec.options["features"] = "12";
  EXPECT_THROW(make_network(spec), Error);
}

// The frames are told apart: the first two are not the last two.
TEST(TemporalSpan, LooksAtEveryFrame) {
  torch::manual_seed(1);
  const torch::NoGradGuard no_grad;
  const auto network = make_network(small_temporalspan(1));
  network->eval();
  const torch::Tensor clip = torch::rand({1, 5, 3, 12, 10});
  const torch::Tensor output = network->forward(clip);
  for (int frame = 0; frame < 5; ++frame) {
    torch::Tensor changed = clip.clone();
    changed.select(1, frame).add_(0.3);
    EXPECT_FALSE(torch::allclose(network->forward(changed), output)) << frame;
  }
  EXPECT_FALSE(torch::allclose(network->forward(clip.flip(1)), output));
}

TEST(TemporalSpan, StartsWithoutAPatternAmongThePixelsOfOne) {
  torch::manual_seed(2);
  const auto network = make_network(small_temporalspan(2));
  const torch::Tensor weight = network->named_parameters()["upsampler.0.weight"].detach();
  EXPECT_TRUE(torch::equal(weight.unflatten(0, {3, 4}).select(1, 0), weight.unflatten(0, {3, 4}).select(1, 3)));
  EXPECT_NEAR(weight.std().item<double>(), std::sqrt(2.0 / (16 * 9)), 0.02);
  EXPECT_EQ(network->named_parameters()["upsampler.0.bias"].abs().max().item<double>(), 0);
}

}  // namespace
}  // namespace reelgrad
