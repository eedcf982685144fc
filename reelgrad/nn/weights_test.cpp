#include "reelgrad/nn/weights.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <limits>

#include "reelgrad/base/error.h"

namespace reelgrad {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

torch::nn::Linear linear() {
  return torch::nn::Linear(3, 2);
}

std::string load_error(torch::nn::Module& network, const NamedTensors& state) {
  try {
    load_strict(network, state, "x.safetensors");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::failed);
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST(StateDict, SharesStorageWithTheNetwork) {
  auto network = linear();
  for (const auto& [name, tensor] : state_dict(*network)) {
    EXPECT_FALSE(tensor.requires_grad());
    tensor.fill_(3);
  }
  EXPECT_EQ(network->weight[1][2].item<float>(), 3);
}

TEST(LoadStrict, ListsEverythingThatDoesNotFitAndChangesNothing) {
  torch::nn::Sequential network(linear(), linear());
  const torch::Tensor before = network->parameters().front().detach().clone();
  EXPECT_THAT(load_error(*network, {{"0.weight", torch::zeros({2, 3})},
                                    {"0.bias", torch::zeros({4})},
                                    {"1.weight", torch::zeros({2, 3})},
                                    {"extra", torch::zeros({1})}}),
              AllOf(HasSubstr("x.safetensors"), HasSubstr("2 of 4 tensors match"), HasSubstr("1 missing: 1.bias"),
                    HasSubstr("1 unexpected: extra"), HasSubstr("1 of another shape: 0.bias [4] (needed [2])")));
  EXPECT_TRUE(torch::equal(network->parameters().front(), before));
}

TEST(LoadStrict, RefusesAKeyGivenTwice) {
  auto network = linear();
  const torch::Tensor weight = torch::zeros({2, 3}), bias = torch::zeros({2});
  EXPECT_THAT(load_error(*network, {{"weight", weight}, {"bias", bias}, {"bias", bias}}),
              HasSubstr("1 given twice: bias"));
}

TEST(LoadStrict, ConvertsTheType) {
  auto network = linear();
  load_strict(*network,
              {{"weight", torch::full({2, 3}, 0.5, torch::kFloat64)}, {"bias", torch::ones({2}, torch::kHalf)}}, "x");
  EXPECT_EQ(network->weight.scalar_type(), torch::kFloat32);
  EXPECT_EQ(network->weight.sum().item<float>(), 3);
  EXPECT_EQ(network->bias.sum().item<float>(), 2);
}

TEST(RequireFinite, NamesTheTensorAndTheCount) {
  torch::Tensor poisoned = torch::zeros({2, 5});
  poisoned[0][1] = std::numeric_limits<float>::infinity();
  poisoned[1][4] = std::numeric_limits<float>::quiet_NaN();
  require_finite({{"good", torch::ones({3})}, {"count", torch::ones({1}, torch::kInt64)}}, "the weights");
  try {
    require_finite({{"good", torch::ones({3})}, {"bad", poisoned}}, "the weights");
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "the weights: bad has 2 of 10 values that are not finite");
  }
}

}  // namespace
}  // namespace reelgrad
