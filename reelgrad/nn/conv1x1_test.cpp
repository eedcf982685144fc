// Convolutions of single pixels against torch's in float64.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "reelgrad/nn/architecture_tools.h"

namespace reelgrad {
namespace {

std::vector<torch::Tensor> pixelwise_gradients(const torch::Tensor& y, const torch::Tensor& dy, const torch::Tensor& x,
                                               const torch::nn::Conv2d& conv) {
  return torch::autograd::grad({y}, {x, conv->weight, conv->bias}, {dy.to(y.options())});
}

void expect_conv1x1_is_a_convolution(torch::MemoryFormat layout, torch::ScalarType type, torch::Device device,
                                     double bound) {
  torch::manual_seed(8);
  torch::nn::Conv2d conv = same_conv(24, 40, 1), exact = same_conv(24, 40, 1);
  conv->to(device, type);
  conv->weight.set_data(conv->weight.detach().contiguous(layout));
  {
    const torch::NoGradGuard no_grad;
    exact->to(torch::kFloat64);
    exact->weight.copy_(conv->weight);
    exact->bias.copy_(conv->bias);
  }
  const torch::Tensor values = torch::randn({3, 24, 31, 20}).to(type).contiguous(layout);
  const torch::Tensor dy = torch::randn({3, 40, 31, 20}).to(type);
  const torch::Tensor x = values.to(device).set_requires_grad(true);
  const torch::Tensor x2 = values.to(torch::kFloat64).set_requires_grad(true);
  const torch::Tensor y = conv1x1(x, conv), reference = exact(x2);
  const auto expect_near = [&](const torch::Tensor& ours, const torch::Tensor& theirs) {
    ASSERT_EQ(ours.sizes(), theirs.sizes());
    const torch::Tensor difference = ours.detach().to(torch::kCPU, torch::kFloat64) - theirs.detach();
    EXPECT_LE(difference.norm().item<double>(), bound * theirs.norm().item<double>());
  };
  EXPECT_TRUE(y.is_contiguous(layout));
  expect_near(y, reference);
  const auto ours = pixelwise_gradients(y, dy, x, conv), theirs = pixelwise_gradients(reference, dy, x2, exact);
  for (std::size_t g = 0; g < ours.size(); ++g) expect_near(ours[g], theirs[g]);
}

TEST(Conv1x1, IsAConvolution) {
  expect_conv1x1_is_a_convolution(torch::MemoryFormat::Contiguous, torch::kFloat64, torch::kCPU, 1e-12);
  expect_conv1x1_is_a_convolution(torch::MemoryFormat::ChannelsLast, torch::kFloat64, torch::kCPU, 1e-12);
}

TEST(Conv1x1GpuTest, IsAConvolution) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA card";
  expect_conv1x1_is_a_convolution(torch::MemoryFormat::Contiguous, torch::kHalf, torch::kCUDA, 1e-3);
  expect_conv1x1_is_a_convolution(torch::MemoryFormat::ChannelsLast, torch::kHalf, torch::kCUDA, 1e-3);
  expect_conv1x1_is_a_convolution(torch::MemoryFormat::ChannelsLast, torch::kBFloat16, torch::kCUDA, 8e-3);
}

}  // namespace
}  // namespace reelgrad
