// Our large convolutions against torch's in float32, of the same rounded inputs and weights.
#include "reelgrad/nn/large_conv.h"

#include <ATen/autocast_mode.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <random>

#include "reelgrad/kernels/conv.h"

namespace reelgrad {
namespace {

struct LargeKernel {
  torch::Tensor weight, bias;

  torch::Tensor operator()(const torch::Tensor& x) const { return large_conv(x, weight, bias); }
  bool is_ours(const torch::Tensor& x) const { return own_large_conv_takes(x, weight, bias); }

  torch::Tensor by_torch(const torch::Tensor& x) const {
    const std::int64_t seeing = weight.size(0);
    const torch::Tensor seen = at::conv2d(x.narrow(1, 0, seeing), weight, bias, 1, weight.size(2) / 2);
    return at::cat({seen, x.narrow(1, seeing, x.size(1) - seeing)}, 1);
  }

  std::vector<torch::Tensor> gradients(const torch::Tensor& y, const torch::Tensor& dy, const torch::Tensor& x) const {
    return torch::autograd::grad({y}, {x, weight, bias}, {dy});
  }
};

double off_by(const torch::Tensor& ours, const torch::Tensor& reference) {
  const torch::Tensor a = ours.detach().to(torch::kDouble), b = reference.detach().to(torch::kDouble);
  return ((a - b).norm() / b.norm().clamp_min(1e-30)).item<double>();
}

torch::Tensor first_channels(const torch::Tensor& t) {
  return t.narrow(1, 0, 16);
}

class LargeConvGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available() || !cuda::warp::has_conv(0))
      GTEST_SKIP() << "no card of compute capability 8.0 or later";
    at::globalContext().setAllowTF32CuBLAS(false);
    at::globalContext().setAllowTF32CuDNN(false);
    torch::manual_seed(7);
    if (!kernel(torch::kHalf).is_ours(picture(1, 64, 8, 8, torch::kHalf)))
      GTEST_SKIP() << "REELGRAD_CONV leaves convolutions to torch";
  }

  int one_of(std::initializer_list<int> values) { return values.begin()[random_() % values.size()]; }

  static torch::Tensor normal(at::IntArrayRef shape) { return torch::randn(shape, torch::kCUDA); }

  // Whose weights have the precision of `type`.
  static LargeKernel kernel(torch::ScalarType type) {
    return {(normal({16, 16, 17, 17}) / 68).to(type).to(torch::kFloat).set_requires_grad(true),
            (normal({16}) * 0.3).set_requires_grad(true)};
  }

  static torch::Tensor picture(int n, int c, int h, int w, torch::ScalarType type) {
    return normal({n, c, h, w}).to(type).contiguous(torch::MemoryFormat::ChannelsLast);
  }

  // Of the rounding of the result: of many values less than half a unit in the last place.
  static double rounding(torch::ScalarType type, const torch::Tensor& result) {
    const bool many = first_channels(result).numel() >= 4096;
    return type == torch::kBFloat16 ? (many ? 2e-3 : 3.9e-3) : many ? 3e-4 : 4.9e-4;
  }

  std::mt19937 random_{5};
};

TEST_F(LargeConvGpuTest, AgreesWithTorchThereAndBack) {
  for (const torch::ScalarType type : {torch::kHalf, torch::kBFloat16}) {
    for (int i = 0; i < 60; ++i) {
      const int n = one_of({1, 1, 2, 3, 65}), h = one_of({1, 2, 7, 16, 31, 33, 67}),
                w = one_of({1, 3, 8, 16, 63, 64, 65, 259}), c = one_of({16, 24, 64, 64, 96});
      if (n > 3 && h * w > 2000) continue;
      SCOPED_TRACE(testing::Message() << n << " × " << c << " × " << h << " × " << w << ", " << type);
      const LargeKernel k = kernel(type);
      const torch::Tensor values = i % 3 == 0 ? normal({n, c, h, w}).to(type) : picture(n, c, h, w, type);
      const torch::Tensor x = values.detach().set_requires_grad(true), dy = picture(n, c, h, w, type);
      ASSERT_TRUE(k.is_ours(x));
      const torch::Tensor y = k(x), x2 = x.detach().to(torch::kFloat).set_requires_grad(true);
      const torch::Tensor reference = k.by_torch(x2);
      ASSERT_EQ(y.scalar_type(), type);
      EXPECT_LE(off_by(first_channels(y), first_channels(reference)), rounding(type, y));
      EXPECT_TRUE(torch::equal(y.narrow(1, 16, c - 16), x.narrow(1, 16, c - 16)));

      const auto ours = k.gradients(y, dy, x), theirs = k.gradients(reference, dy.to(torch::kFloat), x2);
      EXPECT_LE(off_by(first_channels(ours[0]), first_channels(theirs[0])), rounding(type, y));
      EXPECT_TRUE(torch::equal(ours[0].narrow(1, 16, c - 16), dy.narrow(1, 16, c - 16)));
      EXPECT_LE(off_by(ours[1], theirs[1]), 1e-4);
      EXPECT_LE(off_by(ours[2], theirs[2]), 1e-5);
      const torch::NoGradGuard no_grad;
      EXPECT_TRUE(torch::equal(k(x.detach().clone()), y));  // which has weights for one way only
    }
  }
}

TEST_F(LargeConvGpuTest, TheSameBitsEachTime) {
  const LargeKernel k = kernel(torch::kBFloat16);
  const torch::Tensor x = picture(16, 64, 64, 64, torch::kBFloat16).set_requires_grad(true);
  const torch::Tensor dy = picture(16, 64, 64, 64, torch::kBFloat16), y = k(x);
  const auto first = k.gradients(y, dy, x);
  for (int i = 0; i < 20; ++i) {
    const torch::Tensor again = k(x);
    ASSERT_TRUE(torch::equal(again, y));
    const auto gradients = k.gradients(again, dy, x);
    for (std::size_t g = 0; g < first.size(); ++g) ASSERT_TRUE(torch::equal(first[g], gradients[g])) << g;
  }
}

// Of the weights' gradients within a kernel's reach of the picture's upper and lower edge alone another value that is
// no number may come out: there infinity is multiplied with a zero beyond the edge.
TEST_F(LargeConvGpuTest, WhatIsNotANumberStaysSo) {
  for (const torch::ScalarType type : {torch::kHalf, torch::kBFloat16}) {
    const LargeKernel k = kernel(type);
    torch::Tensor x = picture(1, 64, 40, 50, type), dy = picture(1, 64, 40, 50, type);
    x[0][3][20][25] = std::numeric_limits<float>::quiet_NaN();
    x[0][7][30][46] = std::numeric_limits<float>::infinity();
    x[0][40][5][5] = -std::numeric_limits<float>::infinity();
    dy[0][5][19][21] = std::numeric_limits<float>::quiet_NaN();
    x.set_requires_grad(true);
    // On the CPU: cuDNN may go by way of a transform, in which one of them spreads.
    const auto on_cpu = [](const torch::Tensor& t) {
      return t.detach().to(torch::kCPU, torch::kDouble).set_requires_grad(true);
    };
    const LargeKernel exact{on_cpu(k.weight), on_cpu(k.bias)};
    const torch::Tensor y = k(x), x2 = on_cpu(x), reference = exact.by_torch(x2);
    EXPECT_TRUE(torch::equal(y.isnan().cpu(), reference.isnan()));
    EXPECT_TRUE(torch::equal(y.isinf().cpu(), reference.isinf()));
    const auto ours = k.gradients(y, dy, x), theirs = exact.gradients(reference, on_cpu(dy), x2);
    for (std::size_t g = 0; g < ours.size(); ++g)
      EXPECT_TRUE(torch::equal(ours[g].isnan().cpu(), theirs[g].isnan())) << "gradient " << g;
  }
}

TEST_F(LargeConvGpuTest, AGraphReplaysNewWeights) {
  const torch::NoGradGuard no_grad;
  const LargeKernel k = kernel(torch::kHalf);
  const torch::Tensor x = picture(1, 64, 40, 50, torch::kHalf);
  torch::Tensor y;
  at::cuda::CUDAGraph graph;
  {
    const c10::cuda::CUDAStreamGuard side(c10::cuda::getStreamFromPool());
    y = k(x);
    c10::cuda::getCurrentCUDAStream().synchronize();
    graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    y = k(x);
    graph.capture_end();
  }
  for (int round = 0; round < 3; ++round) {
    k.weight.copy_(kernel(torch::kHalf).weight);
    x.copy_(picture(1, 64, 40, 50, torch::kHalf));
    torch::cuda::synchronize();
    graph.replay();
    torch::cuda::synchronize();
    EXPECT_LE(off_by(first_channels(y), first_channels(k.by_torch(x.to(torch::kFloat)))), 3e-4);
  }
}

TEST_F(LargeConvGpuTest, WhatIsFrozenHasNoGradient) {
  LargeKernel k = kernel(torch::kHalf);
  k.weight.set_requires_grad(false);
  const torch::Tensor x = picture(2, 64, 20, 30, torch::kHalf), dy = picture(2, 64, 20, 30, torch::kHalf);
  k(x).backward(dy);
  EXPECT_FALSE(k.weight.grad().defined());
  EXPECT_FALSE(x.grad().defined());
  const torch::Tensor sums = first_channels(dy).to(torch::kFloat).sum({0, 2, 3});
  EXPECT_LE(off_by(k.bias.grad(), sums), 1e-5);
}

TEST_F(LargeConvGpuTest, AnyLayoutIsTaken) {
  const torch::NoGradGuard no_grad;
  LargeKernel k = kernel(torch::kHalf);
  const torch::Tensor whole = picture(2, 128, 40, 50, torch::kHalf);
  for (const torch::Tensor& x :
       {whole.narrow(1, 64, 64), whole.narrow(1, 4, 64), whole.narrow(1, 0, 64).transpose(2, 3),
        whole.narrow(1, 0, 64).narrow(2, 3, 20).narrow(3, 5, 30), whole.narrow(2, 0, 1).expand({2, 128, 40, 50})}) {
    ASSERT_TRUE(k.is_ours(x));
    EXPECT_LE(off_by(first_channels(k(x)), first_channels(k.by_torch(x.to(torch::kFloat)))), 3e-4) << x.strides();
  }
  const torch::Tensor y = k(whole);
  k.weight = k.weight.contiguous(torch::MemoryFormat::ChannelsLast);
  EXPECT_TRUE(torch::equal(k(whole), y));
  k.weight = k.weight.to(torch::kHalf);
  EXPECT_TRUE(torch::equal(k(whole), y));
}

TEST_F(LargeConvGpuTest, WhatItCannotDoIsTorchs) {
  const torch::NoGradGuard no_grad;
  const LargeKernel k = kernel(torch::kHalf);
  const torch::Tensor x = picture(1, 64, 8, 8, torch::kHalf);
  EXPECT_FALSE(k.is_ours(x.to(torch::kFloat)));
  EXPECT_FALSE(k.is_ours(x.cpu()));
  EXPECT_FALSE(k.is_ours(x.narrow(1, 0, 20)));
  EXPECT_FALSE(k.is_ours(x.narrow(1, 0, 8)));
  EXPECT_FALSE(k.is_ours(x.narrow(0, 0, 0)));
  EXPECT_FALSE(own_large_conv_takes(x, normal({16, 16, 15, 15}), k.bias));
  EXPECT_FALSE(own_large_conv_takes(x, normal({24, 24, 17, 17}), normal({24})));
  EXPECT_FALSE(own_large_conv_takes(x, k.weight.cpu(), k.bias));
  at::autocast::set_autocast_enabled(at::kCUDA, true);
  at::autocast::set_autocast_dtype(at::kCUDA, torch::kBFloat16);
  const bool of_other_type = k.is_ours(x), of_its_own = k.is_ours(x.to(torch::kBFloat16));
  at::autocast::set_autocast_enabled(at::kCUDA, false);
  EXPECT_FALSE(of_other_type);
  EXPECT_TRUE(of_its_own);
}

TEST(LargeConvTest, OnTheCpuItIsTorchs) {
  torch::manual_seed(3);
  const LargeKernel k{torch::randn({6, 6, 5, 5}, torch::requires_grad()), torch::randn({6}, torch::requires_grad())};
  const torch::Tensor x = torch::randn({2, 10, 9, 7}, torch::requires_grad()), dy = torch::randn({2, 10, 9, 7});
  EXPECT_FALSE(k.is_ours(x));
  const torch::Tensor y = k(x), reference = k.by_torch(x);
  EXPECT_TRUE(torch::equal(y, reference));
  const auto ours = k.gradients(y, dy, x), theirs = k.gradients(reference, dy, x);
  for (std::size_t g = 0; g < ours.size(); ++g) EXPECT_TRUE(torch::equal(ours[g], theirs[g])) << "gradient " << g;
  const torch::NoGradGuard no_grad;
  EXPECT_TRUE(torch::equal(k(x.detach().clone()), reference));
}

}  // namespace
}  // namespace reelgrad
