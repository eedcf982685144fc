#include "reelgrad/nn/bilinear_doubling.h"

#include <ATen/Context.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <vector>

#include "reelgrad/nn/relative_error.h"

namespace reelgrad {
namespace {

torch::Tensor by_torch(const torch::Tensor& x) {
  return at::upsample_bilinear2d(x, {2 * x.size(2), 2 * x.size(3)}, /*align_corners=*/false);
}

const std::vector<std::vector<std::int64_t>> kSizes{{1, 8, 1, 1}, {2, 16, 1, 5}, {3, 24, 6, 2}, {2, 64, 13, 9}};

struct Results {
  torch::Tensor y, dx;
};

Results results(torch::Tensor (*doubling)(const torch::Tensor&), const torch::Tensor& input, const torch::Tensor& dy) {
  const torch::Tensor x = input.detach().clone().requires_grad_();
  const torch::Tensor y = doubling(x);
  return {y.detach(), torch::autograd::grad({y}, {x}, {dy.to(y.options())}).front()};
}

TEST(BilinearDoublingGpu, EqualsTorchsInFloat64) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA card";
  torch::manual_seed(1);
  for (const auto& [type, tolerance] :
       {std::pair(torch::kFloat32, 1e-6), std::pair(torch::kFloat16, 4e-4), std::pair(torch::kBFloat16, 3e-3)}) {
    for (const auto& size : kSizes) {
      SCOPED_TRACE(fmt::format("{} {}", torch::toString(type), fmt::join(size, "x")));
      const torch::Tensor x = torch::randn(size, torch::kCUDA).to(type).contiguous(torch::MemoryFormat::ChannelsLast);
      const torch::Tensor dy = torch::randn({size[0], size[1], 2 * size[2], 2 * size[3]}, torch::kCUDA).to(type);
      const Results ours = results(bilinear_doubling, x, dy);
      const Results reference = results(by_torch, x.to(torch::kFloat64), dy.to(torch::kFloat64));
      EXPECT_EQ(ours.y.scalar_type(), type);
      EXPECT_LE(relative_error(ours.y, reference.y), tolerance);
      EXPECT_LE(relative_error(ours.dx, reference.dx), tolerance);
    }
  }
}

TEST(BilinearDoublingGpu, TakesTensorsOfAnyLayout) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA card";
  torch::manual_seed(1);
  const torch::Tensor x = torch::randn({2, 17, 5, 8}, torch::kCUDA).narrow(1, 1, 16).transpose(2, 3);
  EXPECT_LE(relative_error(bilinear_doubling(x), by_torch(x)), 1e-6);
}

TEST(BilinearDoublingGpu, HasSecondDerivatives) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA card";
  torch::manual_seed(1);
  const torch::Tensor start = torch::randn({2, 8, 5, 6}, torch::kCUDA);
  const auto twice = [&](torch::Tensor (*doubling)(const torch::Tensor&)) {
    const torch::Tensor x = start.clone().requires_grad_();
    const torch::Tensor once =
        torch::autograd::grad({doubling(x).pow(3).sum()}, {x}, {}, std::nullopt, /*create_graph=*/true).front();
    return torch::autograd::grad({once.square().sum()}, {x}).front();
  };
  EXPECT_LE(relative_error(twice(bilinear_doubling), twice(by_torch)), 1e-5);
}

TEST(BilinearDoublingGpu, OrderedOperationsAreTorchs) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA card";
  torch::manual_seed(1);
  // Of 3 channels, which fill no unit of 16 bytes.
  const torch::Tensor x = torch::randn({2, 3, 5, 6}, torch::kCUDA);
  const torch::Tensor reference = by_torch(x);
  at::globalContext().setDeterministicAlgorithms(true, false);
  const torch::Tensor ours = bilinear_doubling(x);
  at::globalContext().setDeterministicAlgorithms(false, false);
  EXPECT_LE(relative_error(ours, reference), 1e-6);
}

}  // namespace
}  // namespace reelgrad
