// Our layer norm against torch's of float32, of the same rounded inputs.
#include "reelgrad/nn/channel_norm.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include "reelgrad/kernels/conv.h"

namespace reelgrad {
namespace {

constexpr double kNormEpsilon = 1e-6;

struct NormParameters {
  torch::Tensor weight, bias;

  torch::Tensor operator()(const torch::Tensor& x) const { return channel_norm(x, weight, bias, kNormEpsilon); }
  bool is_ours(const torch::Tensor& x) const { return own_channel_norm_takes(x, weight, bias); }

  torch::Tensor by_torch(const torch::Tensor& x) const {
    return at::layer_norm(x.permute({0, 2, 3, 1}), {x.size(1)}, weight, bias, kNormEpsilon).permute({0, 3, 1, 2});
  }

  std::vector<torch::Tensor> gradients(const torch::Tensor& y, const torch::Tensor& dy, const torch::Tensor& x) const {
    return torch::autograd::grad({y}, {x, weight, bias}, {dy});
  }
};

NormParameters norm_of(std::int64_t channels, const torch::TensorOptions& options) {
  return {torch::randn({channels}, options).set_requires_grad(true),
          torch::randn({channels}, options).set_requires_grad(true)};
}

double distance(const torch::Tensor& ours, const torch::Tensor& reference) {
  const torch::Tensor a = ours.detach().to(torch::kDouble), b = reference.detach().to(torch::kDouble);
  return ((a - b).norm() / b.norm().clamp_min(1e-30)).item<double>();
}

class ChannelNormGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available() || !cuda::warp::has_conv(0))
      GTEST_SKIP() << "no card of compute capability 8.0 or later";
    torch::manual_seed(9);
    if (!norm_of(64, torch::kCUDA).is_ours(picture({1, 64, 4, 4}, torch::kHalf)))
      GTEST_SKIP() << "REELGRAD_CONV leaves convolutions to torch";
  }

  // Far from zero, where a sum of squares less the square of the sum would be no variance any more.
  static torch::Tensor picture(at::IntArrayRef shape, torch::ScalarType type) {
    return (torch::randn(shape, torch::kCUDA) + 3).to(type).contiguous(torch::MemoryFormat::ChannelsLast);
  }
};

TEST_F(ChannelNormGpuTest, AgreesWithTorchThereAndBack) {
  for (const torch::ScalarType type : {torch::kHalf, torch::kBFloat16}) {
    const double rounding = type == torch::kHalf ? 3e-4 : 2e-3;
    for (const int channels : {8, 16, 24, 48, 64, 96, 128, 192, 256}) {
      for (const auto& [n, h, w] : {std::array{3, 67, 43}, std::array{1, 40, 301}, std::array{65, 9, 8}}) {
        SCOPED_TRACE(testing::Message() << n << " × " << channels << " × " << h << " × " << w << ", " << type);
        const NormParameters norm = norm_of(channels, torch::kCUDA);
        const torch::Tensor x = picture({n, channels, h, w}, type).set_requires_grad(true);
        const torch::Tensor dy = picture({n, channels, h, w}, type);
        ASSERT_TRUE(norm.is_ours(x));
        const torch::Tensor y = norm(x), x2 = x.detach().to(torch::kDouble).set_requires_grad(true);
        const NormParameters exact{norm.weight.detach().to(torch::kDouble).set_requires_grad(true),
                                   norm.bias.detach().to(torch::kDouble).set_requires_grad(true)};
        const torch::Tensor reference = exact.by_torch(x2);
        ASSERT_EQ(y.scalar_type(), type);
        EXPECT_LE(distance(y, reference), rounding);
        const auto ours = norm.gradients(y, dy, x), again = norm.gradients(norm(x), dy, x);
        const auto theirs = exact.gradients(reference, dy.to(torch::kDouble), x2);
        EXPECT_LE(distance(ours[0], theirs[0]), rounding);
        EXPECT_LE(distance(ours[1], theirs[1]), 1e-4);
        EXPECT_LE(distance(ours[2], theirs[2]), 1e-5);
        for (std::size_t g = 0; g < ours.size(); ++g) EXPECT_TRUE(torch::equal(ours[g], again[g])) << "gradient " << g;
      }
    }
  }
}

TEST_F(ChannelNormGpuTest, FewPixelsAndAnyLayoutAreTaken) {
  const torch::NoGradGuard no_grad;
  const NormParameters norm = norm_of(64, torch::kCUDA);
  const torch::Tensor whole = picture({2, 128, 40, 50}, torch::kHalf);
  for (const torch::Tensor& x :
       {whole.narrow(1, 64, 64), whole.narrow(1, 4, 64), whole.narrow(1, 0, 64).contiguous(),
        whole.narrow(1, 0, 64).narrow(2, 3, 1).narrow(3, 5, 1), whole.narrow(1, 0, 64).transpose(2, 3),
        whole.narrow(1, 0, 64).narrow(2, 0, 1).expand({2, 64, 40, 50})}) {
    ASSERT_TRUE(norm.is_ours(x));
    EXPECT_LE(distance(norm(x), norm.by_torch(x.to(torch::kFloat))), 4.9e-4) << x.strides();
  }
}

TEST_F(ChannelNormGpuTest, WhatIsNotANumberStaysInItsPixel) {
  const torch::NoGradGuard no_grad;
  const NormParameters norm = norm_of(24, torch::kCUDA);
  const torch::Tensor x = picture({1, 24, 9, 10}, torch::kHalf);
  x[0][3][2][5] = std::numeric_limits<float>::quiet_NaN();
  x[0][7][8][0] = std::numeric_limits<float>::infinity();
  const torch::Tensor is_none = norm(x).isnan();
  EXPECT_TRUE(torch::equal(is_none, norm.by_torch(x.to(torch::kFloat)).isnan()));
  EXPECT_EQ(is_none.sum().item<int>(), 2 * 24);
}

TEST_F(ChannelNormGpuTest, WhatIsFrozenHasNoGradient) {
  NormParameters norm = norm_of(64, torch::kCUDA);
  norm.weight.set_requires_grad(false);
  const torch::Tensor x = picture({2, 64, 20, 30}, torch::kHalf), dy = picture({2, 64, 20, 30}, torch::kHalf);
  norm(x).backward(dy);
  EXPECT_FALSE(norm.weight.grad().defined());
  EXPECT_FALSE(x.grad().defined());
  EXPECT_LE(distance(norm.bias.grad(), dy.to(torch::kFloat).sum({0, 2, 3})), 1e-5);
}

TEST_F(ChannelNormGpuTest, WhatItCannotDoIsTorchs) {
  const NormParameters norm = norm_of(64, torch::kCUDA);
  const torch::Tensor x = picture({1, 64, 4, 4}, torch::kHalf);
  EXPECT_FALSE(norm.is_ours(x.to(torch::kFloat)));
  EXPECT_FALSE(norm.is_ours(x.cpu()));
  EXPECT_FALSE(norm.is_ours(x.narrow(0, 0, 0)));
  EXPECT_FALSE(norm.is_ours(x.narrow(1, 0, 32)));
  EXPECT_FALSE(norm_of(20, torch::kCUDA).is_ours(picture({1, 20, 4, 4}, torch::kHalf)));
  EXPECT_FALSE(norm_of(264, torch::kCUDA).is_ours(picture({1, 264, 4, 4}, torch::kHalf)));
}

TEST(ChannelNormTest, OnTheCpuItIsALayerNorm) {
  torch::manual_seed(4);
  const NormParameters norm = norm_of(10, torch::kDouble);
  const torch::Tensor x = (torch::randn({2, 10, 5, 7}, torch::kDouble) * 2 + 3).set_requires_grad(true);
  const torch::Tensor dy = torch::randn({2, 10, 5, 7}, torch::kDouble), y = norm(x), reference = norm.by_torch(x);
  EXPECT_FALSE(norm.is_ours(x));
  EXPECT_LE(distance(y, reference), 1e-12);
  const auto ours = norm.gradients(y, dy, x), theirs = norm.gradients(reference, dy, x);
  for (std::size_t g = 0; g < ours.size(); ++g) EXPECT_LE(distance(ours[g], theirs[g]), 1e-12) << "gradient " << g;
}

}  // namespace
}  // namespace reelgrad
