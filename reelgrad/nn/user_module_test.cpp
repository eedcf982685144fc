// Modules of the user's own: testdata/test_module.cpp.
#include "reelgrad/nn/user_module.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <filesystem>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/base/testing/temporary_folder.h"

namespace reelgrad {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

NetworkSpec module_spec(std::map<std::string, std::string> args = {}, const std::string& file = REELGRAD_TEST_MODULE) {
  return {.arch = "module", .options = {{"module", file}}, .args = std::move(args)};
}

std::string module_error(ErrorKind kind, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_THAT(error.what(), AllOf(HasSubstr("model.module: "), testing::Not(HasSubstr("Exception raised from"))));
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

std::string module_refusal(const NetworkSpec& spec, ErrorKind kind = ErrorKind::usage) {
  return module_error(kind, [&] { make_network(spec); });
}

TEST(UserModule, IsANetworkUnderItsOwnNames) {
  const auto network = make_network(module_spec({{"features", "6"}}));
  EXPECT_EQ(network->info().scale, 2);
  EXPECT_EQ(network->info().receptive_radius_px, 2);
  EXPECT_TRUE(network->is_training());
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state_dict(*network)) names.push_back(name);
  EXPECT_THAT(names, testing::ElementsAre("gain", "head.weight", "head.bias", "tail.weight", "tail.bias", "runs"));
  EXPECT_EQ(network->named_parameters()["head.weight"].size(0), 6);
}

TEST(UserModule, WeightsAndTypeReachIt) {
  const auto network = make_network(module_spec());
  network->to(torch::kFloat64);
  const torch::Tensor input = torch::rand({1, 3, 8, 8}, torch::kFloat64);
  const torch::Tensor output = network->forward(input);
  EXPECT_EQ(output.sizes(), (torch::IntArrayRef{1, 3, 16, 16}));
  output.sum().backward();
  EXPECT_TRUE(network->named_parameters()["gain"].grad().defined());
  const torch::NoGradGuard no_grad;
  network->named_parameters()["gain"].zero_();
  EXPECT_EQ(network->forward(input).abs().max().item<double>(), 0);
  const std::vector<NetworkSegment> segments = network->segments();
  ASSERT_EQ(segments.size(), 1U);
  EXPECT_TRUE(torch::equal(segments[0]({input}).at(0), network->forward(input)));
}

TEST(UserModule, WhatItThrowsNamesIt) {
  EXPECT_THAT(module_refusal(module_spec({{"fault", "constructor"}}), ErrorKind::failed),
              AllOf(HasSubstr("test_module"), HasSubstr("no such filter")));
  EXPECT_THAT(module_refusal(module_spec({{"fault", "odd object"}}), ErrorKind::failed),
              HasSubstr("no std::exception"));
  EXPECT_THAT(module_refusal(module_spec({{"features", "many"}})),
              AllOf(HasSubstr("features = \"many\""), HasSubstr("an integer from 1 to 64")));
  const auto network = make_network(module_spec({{"fault", "training"}}));
  const torch::Tensor input = torch::rand({1, 3, 8, 8});
  const auto run = [&] { network->forward(input); };
  EXPECT_THAT(module_error(ErrorKind::failed, run), HasSubstr("the filter broke"));
  EXPECT_THAT(module_error(ErrorKind::failed, [&] { network->segments().front()({input}); }),
              HasSubstr("the filter broke"));
  network->eval();
  EXPECT_NO_THROW(run());
}

TEST(UserModule, UsedUpMemoryStaysWhatItIs) {
  const auto network = make_network(module_spec({{"fault", "memory"}}));
  EXPECT_THROW(network->forward(torch::rand({1, 3, 8, 8})), c10::OutOfMemoryError);
}

TEST(UserModule, RefusesWhatDoesNotFit) {
  EXPECT_THAT(module_refusal(module_spec({{"fault", "scale"}})), HasSubstr("info() says scale = 3, but model.scale"));
  EXPECT_THAT(module_refusal(module_spec({{"fault", "output"}})), HasSubstr("model.scale = 2"));
  NetworkSpec gray = module_spec();
  gray.color = NetworkColor::gray;
  EXPECT_THAT(module_refusal(gray), HasSubstr("data.color asks for 1"));
}

TEST(UserModule, RefusesOtherFiles) {
  const test::TemporaryFolder folder;
  const auto with_bytes = [&](const std::string& bytes) {
    return module_spec({}, folder.write("module.so", bytes).string());
  };
  EXPECT_THAT(module_refusal(with_bytes("int main() {}")), HasSubstr("REELGRAD_NETWORK"));

  std::string bytes = read_file(REELGRAD_TEST_MODULE);
  const std::size_t torch = bytes.find(" torch=", bytes.find("reelgrad-module interface="));
  ASSERT_NE(torch, bytes.npos);
  bytes.replace(torch, 9, " torch=1.");
  EXPECT_THAT(module_refusal(with_bytes(bytes)), AllOf(HasSubstr("another reelgrad or torch"), HasSubstr("torch=1.")));

  // The stamp is right, the library is not.
  const std::string stamp = "reelgrad-module interface=4 torch=" TORCH_VERSION ";";
  EXPECT_THAT(module_refusal(with_bytes("text with " + stamp)), HasSubstr("cannot be opened"));
}

}  // namespace
}  // namespace reelgrad
