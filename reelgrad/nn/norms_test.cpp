#include "reelgrad/nn/norms.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "reelgrad/nn/architecture_tools.h"
#include "reelgrad/nn/relative_error.h"

namespace reelgrad {
namespace {

torch::nn::BatchNorm2d measured_norm(int features) {
  const torch::NoGradGuard no_grad;
  torch::nn::BatchNorm2d norm(torch::nn::BatchNorm2dOptions(features).eps(1e-4));
  norm->weight.uniform_(0.5, 2);
  norm->bias.normal_();
  norm->running_mean.normal_();
  norm->running_var.uniform_(0.1, 3);
  norm->to(torch::kFloat64);
  norm->eval();
  return norm;
}

void expect_merged_equals_torchs(torch::nn::Conv2d conv) {
  const torch::NoGradGuard no_grad;
  conv->to(torch::kFloat64);
  torch::nn::BatchNorm2d norm = measured_norm(static_cast<int>(conv->options.out_channels()));
  const torch::Tensor x = torch::randn({2, conv->options.in_channels(), 12, 10}, torch::kFloat64);
  EXPECT_LE(relative_error(conv_norm_relu(x, conv, norm), at::relu(norm(conv(x)))), 1e-12);
}

TEST(ConvNormRelu, InEvaluationIsOneConvolution) {
  torch::manual_seed(1);
  expect_merged_equals_torchs(same_conv(6, 8));
  expect_merged_equals_torchs(same_conv(6, 8, 3, /*bias=*/false));
  expect_merged_equals_torchs(torch::nn::Conv2d(torch::nn::Conv2dOptions(6, 9, 3).padding(1).groups(3)));
  expect_merged_equals_torchs(torch::nn::Conv2d(torch::nn::Conv2dOptions(6, 8, 3).padding(1).stride(2)));
}

TEST(ConvNormRelu, MeasuresInTraining) {
  torch::manual_seed(1);
  torch::nn::Conv2d conv = same_conv(6, 8);
  torch::nn::BatchNorm2d ours(8), torchs(8);
  const torch::Tensor x = torch::randn({2, 6, 12, 10});
  EXPECT_LE(relative_error(conv_norm_relu(x, conv, ours), at::relu(torchs(conv(x)))), 1e-6);
  EXPECT_LE(relative_error(ours->running_mean, torchs->running_mean), 1e-6);
}

TEST(GroupNormGpu, OfAPictureFarFromZeroEqualsTorchsInFloat64) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA card";
  torch::manual_seed(1);
  const torch::NoGradGuard no_grad;
  for (const auto type : {torch::kFloat64, torch::kFloat32, torch::kFloat16, torch::kBFloat16}) {
    SCOPED_TRACE(torch::toString(type));
    torch::nn::GroupNorm norm(torch::nn::GroupNormOptions(4, 24));
    norm->weight.uniform_(0.5, 2);
    norm->bias.normal_();
    norm->to(torch::kCUDA, type);
    const torch::Tensor offsets = torch::linspace(-8, 8, 24, torch::kFloat64).view({1, 24, 1, 1});
    const torch::Tensor x = (torch::randn({2, 24, 133, 77}, torch::kFloat64) + offsets).to(torch::kCUDA, type);
    torch::nn::GroupNorm reference(torch::nn::GroupNormOptions(4, 24));
    reference->to(torch::kCUDA, torch::kFloat64);
    reference->weight.copy_(norm->weight);
    reference->bias.copy_(norm->bias);
    const double most = type == torch::kBFloat16 ? 1e-2 : type == torch::kFloat16 ? 1.3e-3 : 2e-6;
    const torch::Tensor expected = reference(x.to(torch::kFloat64));
    EXPECT_LE(relative_error(group_norm(x, norm), expected), most);
    EXPECT_LE(relative_error(group_norm(x.contiguous(torch::MemoryFormat::ChannelsLast), norm), expected), most);
  }
}

}  // namespace
}  // namespace reelgrad
