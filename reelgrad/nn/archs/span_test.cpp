#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>

#include "reelgrad/base/error.h"
#include "reelgrad/nn/architectures.h"
#include "reelgrad/nn/network_contract.h"
#include "reelgrad/nn/spandrel_testing.h"

namespace reelgrad {
namespace {

NetworkSpec small_span(int scale, bool norm = false, NetworkColor color = NetworkColor::rgb) {
  return {.arch = "span",
          .scale = scale,
          .color = color,
          .options = {{"features", "8"}, {"norm", norm ? "true" : "false"}}};
}

const torch::Tensor& tensor_of(const NamedTensors& state, const std::string& key) {
  const auto found = std::ranges::find(state, key, &NamedTensors::value_type::first);
  TORCH_CHECK(found != state.end(), key);
  return found->second;
}

TEST(SpanSpandrel, FourTimes) {
  test::expect_agrees_with_spandrel(
      {.spec = {.arch = "span", .scale = 4, .options = {{"features", "48"}, {"norm", "false"}}}, .id = "SPAN"});
}

TEST(SpanSpandrel, NormalisedThreeTimes) {
  test::expect_agrees_with_spandrel({.spec = small_span(3, /*norm=*/true), .id = "SPAN"});
}

TEST(SpanSpandrel, GrayOnce) {
  test::expect_agrees_with_spandrel({.spec = small_span(1, false, NetworkColor::gray), .id = "SPAN"});
}

TEST(Span, KeepsTheContract) {
  for (const bool norm : {true, false}) {
    SCOPED_TRACE(norm);
    test::expect_keeps_the_contract(small_span(2, norm));
  }
}

TEST(Span, IsRecognisedWithEveryOption) {
  for (const int scale : {1, 2, 3, 4, 8}) {
    test::expect_is_recognised(small_span(scale));
    test::expect_is_recognised(small_span(scale, /*norm=*/true));
    test::expect_is_recognised(small_span(scale, false, NetworkColor::gray));
  }
}

TEST(Span, NormTakesThreeChannels) {
  EXPECT_THROW(make_network(small_span(2, /*norm=*/true, NetworkColor::gray)), Error);
}

// Of spandrel's modules, less the one value of no_norm; the merged network's are the paper's 426 thousand.
TEST(Span, ParameterCountsArePublished) {
  const NetworkSpec four_times{.arch = "span", .scale = 4};
  EXPECT_EQ(test::count_values(four_times) - 1, 2'236'728);
  EXPECT_EQ(test::count_values({.arch = "span", .scale = 4, .options = {{"features", "52"}}}) - 1, 2'621'964);
  std::int64_t merged = 0;
  for (const auto& [name, tensor] : state_dict(*make_network(four_times))) {
    const bool used = name.find(".eval_conv.") != name.npos || name.starts_with("conv_cat") || name.starts_with("ups");
    if (used) merged += tensor.numel();
  }
  EXPECT_EQ(merged, 426'288);
}

// What is written must be what is computed: also from weights of training that the network does not hold.
TEST(Span, DerivesWhatItComputesInEvaluation) {
  torch::manual_seed(4);
  const torch::NoGradGuard no_grad;
  const auto network = make_network(small_span(2)), other = make_network(small_span(2));
  NamedTensors state;
  for (const auto& [name, tensor] : state_dict(*network)) state.emplace_back(name, tensor.clone());
  for (auto& [name, tensor] : state) {
    if (name.find("eval_conv") == name.npos) tensor.add_(torch::randn_like(tensor), 0.1);
  }
  const NamedTensors before = state;
  network->derive(state);
  EXPECT_FALSE(torch::equal(tensor_of(state, "block_2.c1_r.eval_conv.weight"),
                            tensor_of(before, "block_2.c1_r.eval_conv.weight")));
  EXPECT_TRUE(torch::equal(tensor_of(state, "block_2.c1_r.sk.weight"), tensor_of(before, "block_2.c1_r.sk.weight")));

  other->eval();
  load_strict(*other, state, "derived");
  const torch::Tensor input = torch::rand({1, 3, 9, 11});
  const torch::Tensor derived = other->forward(input);
  other->train();
  EXPECT_LE((other->forward(input) - derived).abs().max().item<double>(), 1e-5);
  load_strict(*other, before, "not derived");
  other->eval();
  EXPECT_TRUE(torch::equal(other->forward(input), derived));
}

}  // namespace
}  // namespace reelgrad
