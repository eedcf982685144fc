#include <gmock/gmock.h>
#include <torch/torch.h>

#include <map>
#include <string>
#include <utility>

#include "reelgrad/base/error.h"
#include "reelgrad/nn/architectures.h"
#include "reelgrad/nn/network_contract.h"
#include "reelgrad/nn/spandrel_testing.h"

namespace reelgrad {
namespace {

NetworkSpec tscunet_spec(int scale, const std::map<std::string, std::string>& options = {},
                         NetworkColor color = NetworkColor::rgb) {
  NetworkSpec spec{.arch = "tscunet",
                   .scale = scale,
                   .window = 5,
                   .color = color,
                   .options = {{"features", "64"}, {"blocks", "1"}, {"residual", "true"}, {"sigma", "false"}}};
  for (const auto& [name, value] : options) spec.options[name] = value;
  return spec;
}

// The reference has no noise, and mirrors a picture once: for its margins in evaluation it must be large.
void expect_agrees_without_noise(NetworkSpec spec, bool large = false) {
  test::expect_agrees_with_reference({.spec = std::move(spec),
                                      .id = "tscunet",
                                      .batch = 1,
                                      .height = 48,
                                      .width = 44,
                                      .large = large,
                                      .untold = {{"noise", "false"}}},
                                     "tscunet_reference.py");
}

TEST(TscunetReferenceSlow, TwiceWithShiftedWindows) {
  expect_agrees_without_noise(tscunet_spec(2, {{"blocks", "2"}}), /*large=*/true);
}

TEST(TscunetReferenceSlow, GrayOnceWithoutAResidual) {
  expect_agrees_without_noise(tscunet_spec(1, {{"residual", "false"}, {"sigma", "true"}}, NetworkColor::gray));
}

TEST(Tscunet, KeepsTheContract) {
  test::expect_keeps_the_contract(tscunet_spec(2));
}

// What windows do not see is minus infinity in any type.
TEST(Tscunet, ShiftsWindowsInHalfPrecision) {
  torch::manual_seed(1);
  const torch::NoGradGuard no_grad;
  const auto network = make_network(tscunet_spec(1, {{"blocks", "2"}, {"noise", "false"}}));
  const torch::Tensor clip = torch::rand({1, 5, 3, 16, 16});
  const torch::Tensor expected = network->forward(clip);
  network->to(torch::kBFloat16);
  const torch::Tensor output = network->forward(clip.to(torch::kBFloat16)).to(torch::kFloat);
  EXPECT_LE((output - expected).norm().item<double>(), 0.05 * expected.norm().item<double>());
}

TEST(Tscunet, IsRecognisedWithEveryOption) {
  for (const int scale : {1, 2, 4}) test::expect_is_recognised(tscunet_spec(scale));
  for (const char* option : {"true", "false"}) {
    test::expect_is_recognised(tscunet_spec(2, {{"residual", option}, {"sigma", option}, {"blocks", "2"}}));
  }
  test::expect_is_recognised(tscunet_spec(1, {{"features", "128"}}, NetworkColor::gray));
}

// As the reference module counts them.
TEST(Tscunet, CountsItsParameters) {
  EXPECT_EQ(test::count_trained({.arch = "tscunet", .scale = 2, .window = 5}), 29'156'696);
  EXPECT_EQ(test::count_values(tscunet_spec(4, {{"residual", "false"}, {"sigma", "true"}})), 21'023'024);
}

TEST(Tscunet, SaysWhatItTakes) {
  NetworkSpec spec = tscunet_spec(2);
  spec.window = 3;
  EXPECT_THROW(make_network(spec), Error);
  EXPECT_THROW(make_network(tscunet_spec(2, {{"features", "96"}})), Error);
}

// In training alone, and without it the same weights give the same twice.
TEST(Tscunet, DisturbsItselfInTraining) {
  torch::manual_seed(1);
  const torch::NoGradGuard no_grad;
  const auto noisy = make_network(tscunet_spec(1)), calm = make_network(tscunet_spec(1, {{"noise", "false"}}));
  load_strict(*calm, state_dict(*noisy), "the same weights");
  const torch::Tensor clip = torch::rand({1, 5, 3, 16, 16});
  EXPECT_FALSE(torch::equal(noisy->forward(clip), noisy->forward(clip)));
  EXPECT_TRUE(torch::equal(calm->forward(clip), calm->forward(clip)));
  noisy->eval();
  calm->eval();
  EXPECT_TRUE(torch::equal(noisy->forward(clip), calm->forward(clip)));
}

// With a residual the contract compares them. As in training, where margins are small.
TEST(Tscunet, WorksInStagesWithoutAResidual) {
  torch::manual_seed(1);
  const torch::NoGradGuard no_grad;
  const auto network = make_network(tscunet_spec(1, {{"residual", "false"}, {"noise", "false"}}));
  const std::optional<WindowStages> stages = network->window_stages();
  ASSERT_TRUE(stages);
  const torch::Tensor window = torch::rand({1, 5, 3, 8, 16});
  EXPECT_TRUE(torch::allclose(test::through_stages(*stages, window), network->forward(window), 1e-4, 1e-5));
}

// Frames lie in the batch on the way: those of one clip do not get into another.
TEST(Tscunet, KeepsClipsApart) {
  torch::manual_seed(1);
  const torch::NoGradGuard no_grad;
  const auto network = make_network(tscunet_spec(1, {{"noise", "false"}}));
  const torch::Tensor clips = torch::rand({2, 5, 3, 16, 16});
  const torch::Tensor together = network->forward(clips);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(torch::allclose(network->forward(clips.narrow(0, i, 1)), together.narrow(0, i, 1), 1e-4, 1e-5)) << i;
  }
}

// Pictures that are smaller than their margins are mirrored again and again, single pixels repeated.
TEST(Tscunet, TakesPicturesOfAnySize) {
  torch::manual_seed(1);
  const torch::NoGradGuard no_grad;
  const auto network = make_network(tscunet_spec(1));
  network->eval();
  for (const auto& [height, width] : {std::pair{1, 1}, std::pair{2, 70}, std::pair{64, 3}}) {
    const torch::Tensor output = network->forward(torch::rand({1, 5, 3, height, width}));
    EXPECT_EQ(output.sizes(), (torch::IntArrayRef{1, 3, height, width}));
    EXPECT_TRUE(output.isfinite().all().item<bool>());
  }
}

TEST(Tscunet, ShiftsTheInnermostWindowsOrNot) {
  torch::manual_seed(1);
  const torch::NoGradGuard no_grad;
  const auto shifts = make_network(tscunet_spec(1, {{"blocks", "2"}}));
  const auto stays = make_network(tscunet_spec(1, {{"blocks", "2"}, {"shift_innermost", "false"}}));
  load_strict(*stays, state_dict(*shifts), "the same weights");
  shifts->eval();
  stays->eval();
  const torch::Tensor clip = torch::rand({1, 5, 3, 16, 16});
  EXPECT_FALSE(torch::equal(shifts->forward(clip), stays->forward(clip)));
}

}  // namespace
}  // namespace reelgrad
