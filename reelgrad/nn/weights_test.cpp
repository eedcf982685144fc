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

// Field case G2.
TEST(LoadPartial, TakesWhatFitsAndReportsTheRest) {
  torch::nn::Sequential network(linear(), linear());
  const torch::Tensor other_bias = network->parameters()[1].detach().clone();
  const LoadReport report = load_partial(*network,
                                         {{"0.weight", torch::full({2, 3}, 5)},
                                          {"0.bias", torch::zeros({4})},
                                          {"1.weight", torch::full({2, 3}, 6)},
                                          {"extra", torch::zeros({1})}},
                                         "x");
  EXPECT_THAT(report.loaded, testing::ElementsAre("0.weight", "1.weight"));
  EXPECT_THAT(report.missing, testing::ElementsAre("1.bias"));
  EXPECT_THAT(report.unexpected, testing::ElementsAre("extra"));
  EXPECT_THAT(report.reshaped, testing::ElementsAre("0.bias [4] (needed [2])"));
  EXPECT_DOUBLE_EQ(report.share, 12.0 / 16);
  EXPECT_THAT(describe(report), AllOf(HasSubstr("2 of 4 tensors (75.0 % of the values)"), HasSubstr("1.bias"),
                                      HasSubstr("extra"), HasSubstr("0.bias [4]")));
  EXPECT_EQ(network->parameters()[0].min().item<float>(), 5);
  EXPECT_EQ(network->parameters()[2].min().item<float>(), 6);
  EXPECT_TRUE(torch::equal(network->parameters()[1], other_bias));
}

TEST(LoadPartial, NothingThatFitsIsAnErrorAlways) {
  auto network = linear();
  EXPECT_THROW(load_partial(*network, {{"weight", torch::zeros({3, 3})}, {"other", torch::zeros({1})}}, "x"), Error);
  EXPECT_THROW(load_partial(*network, {}, "x"), Error);
}

// A merged convolution is a buffer: it takes part in channels-last pictures like any other.
TEST(ToChannelsLast, LaysOutParametersAndBuffers) {
  torch::nn::Module network;
  const torch::Tensor parameter = network.register_parameter("parameter", torch::rand({4, 3, 3, 3}));
  const torch::Tensor buffer = network.register_buffer("buffer", torch::rand({4, 3, 3, 3}));
  const torch::Tensor vector = network.register_buffer("vector", torch::rand({4}));
  const torch::Tensor values = parameter.detach().clone(), buffered = buffer.clone();
  to_channels_last(network);
  EXPECT_TRUE(parameter.is_contiguous(torch::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(buffer.is_contiguous(torch::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(torch::equal(parameter, values));
  EXPECT_TRUE(torch::equal(buffer, buffered));
  EXPECT_TRUE(vector.is_contiguous());
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
