// Our convolutions against torch's in float32, of the same rounded inputs and weights.
#include "reelgrad/nn/conv_act.h"

#include <ATen/autocast_mode.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <random>
#include <string_view>

#include "reelgrad/kernels/conv.h"
#include "reelgrad/nn/own_conv.h"

namespace reelgrad {
namespace {

constexpr Activation kActivations[] = {Activation::none,       Activation::prelu,         Activation::relu,
                                       Activation::leaky_relu, Activation::leaky_relu_02, Activation::silu,
                                       Activation::mish,       Activation::gelu,          Activation::sigmoid};

torch::Tensor by_torch(const torch::Tensor& input, std::span<const ConvLayer> layers) {
  torch::Tensor x = input;
  for (const ConvLayer& layer : layers) {
    x = at::conv2d(x, layer.weight, layer.bias, 1, 1);
    switch (layer.activation) {
      case Activation::none:
        break;
      case Activation::prelu:
        x = at::prelu(x, layer.slope);
        break;
      case Activation::relu:
        x = at::relu(x);
        break;
      case Activation::leaky_relu:
        x = at::leaky_relu(x, 0.1);
        break;
      case Activation::leaky_relu_02:
        x = at::leaky_relu(x, 0.2);
        break;
      case Activation::silu:
        x = at::silu(x);
        break;
      case Activation::mish:
        x = at::mish(x);
        break;
      case Activation::gelu:
        x = at::gelu(x);
        break;
      case Activation::sigmoid:
        x = at::sigmoid(x);
        break;
    }
  }
  return x;
}

double relative(const torch::Tensor& ours, const torch::Tensor& reference) {
  const torch::Tensor a = ours.detach().to(torch::kDouble), b = reference.detach().to(torch::kDouble);
  return ((a - b).norm() / b.norm().clamp_min(1e-30)).item<double>();
}

// Of the rounding of the result: of many values less than half a unit in the last place.
double rounding(torch::ScalarType type, std::int64_t values = 1 << 20) {
  constexpr std::int64_t kMany = 4096;
  return type == torch::kBFloat16 ? (values >= kMany ? 2e-3 : 3.9e-3) : values >= kMany ? 3e-4 : 4.9e-4;
}

class Autocast {
 public:
  explicit Autocast(torch::ScalarType type) {
    at::autocast::set_autocast_enabled(at::kCUDA, true);
    at::autocast::set_autocast_dtype(at::kCUDA, type);
  }
  ~Autocast() { at::autocast::set_autocast_enabled(at::kCUDA, false); }
};

class ConvActGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available() || !cuda::has_conv(0)) GTEST_SKIP() << "no card of compute capability 9.0";
    at::globalContext().setAllowTF32CuBLAS(false);
    at::globalContext().setAllowTF32CuDNN(false);
    torch::manual_seed(7);
  }

  // The kernels of compute capability 9.0 alone put pixels where a shuffle wants them.
  static bool shuffles() {
    const char* choice = std::getenv("REELGRAD_CONV");
    return choice == nullptr || std::string_view(choice) != "own80";
  }

  int one_of(std::initializer_list<int> values) { return values.begin()[random_() % values.size()]; }

  static torch::Tensor normal(at::IntArrayRef shape) { return torch::randn(shape, torch::kCUDA); }

  // Whose weights have the precision of `type`.
  static ConvLayer layer(int in, int out, Activation activation, torch::ScalarType type) {
    return {.weight = (normal({out, in, 3, 3}) / (3 * std::sqrt(in))).to(type).to(torch::kFloat),
            .bias = normal({out}) * 0.3,
            .activation = activation,
            .slope = activation == Activation::prelu ? normal({out}) * 0.3 : torch::Tensor()};
  }

  static torch::Tensor picture(int n, int c, int h, int w, torch::ScalarType type) {
    return normal({n, c, h, w}).to(type).contiguous(torch::MemoryFormat::ChannelsLast);
  }

  static void want_gradients(ConvLayer& l) {
    for (torch::Tensor* t : {&l.weight, &l.bias, &l.slope})
      if (t->defined()) t->set_requires_grad(true);
  }

  static std::vector<torch::Tensor> gradients(const torch::Tensor& y, const torch::Tensor& dy, const torch::Tensor& x,
                                              const std::vector<ConvLayer>& layers) {
    std::vector<torch::Tensor> inputs{x};
    for (const ConvLayer& l : layers)
      for (const torch::Tensor& t : {l.weight, l.bias, l.slope})
        if (t.defined()) inputs.push_back(t);
    return torch::autograd::grad({y}, inputs, {dy});
  }

  std::mt19937 random_{5};
};

TEST_F(ConvActGpuTest, ForwardAgreesWithTorch) {
  torch::NoGradGuard no_grad;
  for (const torch::ScalarType type : {torch::kHalf, torch::kBFloat16}) {
    for (int i = 0; i < 500; ++i) {
      const int n = one_of({1, 1, 2, 3, 65}), h = one_of({1, 2, 7, 31, 32, 33, 67}),
                w = one_of({1, 3, 8, 9, 63, 64, 259});
      if (n > 3 && h * w > 2000) continue;
      const int in = one_of({1, 3, 12, 16, 24, 32, 48, 52, 64, 64, 96, 128, 160, 192});
      const bool few = i % 10 == 9 && in <= 64;  // of any number
      const Activation activation = few ? Activation::none : kActivations[i % std::size(kActivations)];
      const int out = few ? one_of({1, 3, 12, 27}) : one_of({16, 24, 32, 48, 52, 64, 64, 96, 128, 160, 192});
      const ConvLayer l = layer(in, out, activation, type);
      const torch::Tensor x = i % 3 == 0 ? normal({n, in, h, w}).to(type) : picture(n, in, h, w, type);
      ASSERT_TRUE(own_conv_takes(x, {&l, 1}));
      const torch::Tensor y = conv3x3_act(x, l.weight, l.bias, l.activation, l.slope);
      EXPECT_EQ(y.scalar_type(), type);
      EXPECT_LE(relative(y, by_torch(x.to(torch::kFloat), {&l, 1})), rounding(type, y.numel()))
          << n << " × " << in << " × " << h << " × " << w << " to " << out << ", activation "
          << static_cast<int>(activation);
    }
  }
}

TEST_F(ConvActGpuTest, GradientsOfALayerAgreeWithTorch) {
  for (const torch::ScalarType type : {torch::kHalf, torch::kBFloat16}) {
    for (int i = 0; i < 120; ++i) {
      const int n = one_of({1, 2, 3}), h = one_of({1, 2, 31, 33, 67}), w = one_of({1, 3, 8, 64, 259});
      const bool few = i % 10 == 9;  // of any number
      const int in = one_of({3, 16, 24, 32, 48, 52, 64, 64, 96, 128, 160, 192}),
                out = few ? one_of({1, 3, 12, 27}) : one_of({16, 24, 32, 48, 52, 64, 64, 96, 128, 160, 192});
      std::vector<ConvLayer> l{
          layer(in, out, few ? Activation::none : kActivations[i % std::size(kActivations)], type)};
      const torch::Tensor x = picture(n, in, h, w, type), dy = picture(n, out, h, w, type);
      torch::Tensor x1 = x.detach().clone().set_requires_grad(true), x2 = x.to(torch::kFloat).set_requires_grad(true);
      want_gradients(l.front());
      const auto ours = gradients(conv3x3_row(x1, l), dy, x1, l);
      const auto theirs = gradients(by_torch(x2, l), dy.to(torch::kFloat), x2, l);
      // dz is rounded before it is used again; and at a kink two sums of another order can lie on two sides.
      const Activation activation = l.front().activation;
      const bool kink = activation == Activation::prelu || activation == Activation::relu ||
                        activation == Activation::leaky_relu || activation == Activation::leaky_relu_02;
      const double bound = 2.5 * rounding(type) + (kink ? 3e-3 : 0);
      for (std::size_t g = 0; g < ours.size(); ++g)
        EXPECT_LE(relative(ours[g], theirs[g]), bound)
            << "gradient " << g << " of " << n << " × " << in << " × " << h << " × " << w << " to " << out
            << ", activation " << static_cast<int>(activation);
      EXPECT_EQ(ours[0].scalar_type(), type);
      EXPECT_EQ(ours[1].scalar_type(), torch::kFloat);
    }
  }
}

TEST_F(ConvActGpuTest, ARowIsItsLayers) {
  for (const Activation activation : kActivations) {
    const torch::ScalarType type = torch::kBFloat16;
    std::vector<ConvLayer> row{layer(3, 64, activation, type), layer(64, 48, activation, type),
                               layer(48, 64, activation, type), layer(64, 12, Activation::none, type)};
    for (ConvLayer& l : row) want_gradients(l);
    torch::Tensor x = normal({2, 3, 33, 21}).set_requires_grad(true);
    torch::Tensor whole, y = x;
    {
      const Autocast autocast(type);
      whole = conv3x3_row_shuffled(x, row, x, 2);
      for (std::size_t i = 0; i + 1 < row.size(); ++i) y = conv3x3_row(y, {&row[i], 1});
      y = conv3x3_row_shuffled(y, {&row.back(), 1}, x, 2);
    }
    EXPECT_TRUE(torch::equal(whole, y));
    EXPECT_EQ(whole.scalar_type(), torch::kFloat);
    EXPECT_TRUE(!shuffles() || whole.is_contiguous());

    const torch::Tensor reference = at::pixel_shuffle(by_torch(x, row) + x.repeat_interleave(4, 1), 2);
    EXPECT_LE(relative(whole, reference), 0.01);
    const torch::Tensor dy = normal(whole.sizes());
    const auto of_row = gradients(whole, dy, x, row), of_layers = gradients(y, dy, x, row);
    const auto exact = gradients(reference, dy, x, row);
    std::vector<torch::Tensor> torchs;  // with autocast, in as many roundings as ours or more
    {
      const Autocast autocast(type);
      const torch::Tensor z = by_torch(x, row);
      torchs = gradients(at::pixel_shuffle(z + x.repeat_interleave(4, 1), 2), dy, x, row);
    }
    for (std::size_t g = 0; g < of_row.size(); ++g) {
      SCOPED_TRACE(testing::Message() << "gradient " << g << ", activation " << static_cast<int>(activation));
      EXPECT_LE(relative(of_row[g], of_layers[g]), 0.01);
      EXPECT_LE(relative(of_row[g], exact[g]), 1.25 * relative(torchs[g], exact[g]) + 0.002);
    }
  }
}

TEST_F(ConvActGpuTest, InDeterministicModeGradientsOfARowAreThoseOfItsLayers) {
  std::vector<ConvLayer> row{layer(3, 64, Activation::prelu, torch::kHalf),
                             layer(64, 64, Activation::silu, torch::kHalf),
                             layer(64, 12, Activation::none, torch::kHalf)};
  for (ConvLayer& l : row) want_gradients(l);
  const torch::Tensor x = picture(2, 3, 33, 21, torch::kHalf).set_requires_grad(true), dy = normal({2, 3, 66, 42});
  at::globalContext().setDeterministicAlgorithms(true, true);
  const torch::Tensor whole = conv3x3_row_shuffled(x, row, x, 2);
  at::globalContext().setDeterministicAlgorithms(false, false);
  const torch::Tensor y = conv3x3_row(conv3x3_row(x, {&row[0], 1}), {&row[1], 1});
  const torch::Tensor by_layers = conv3x3_row_shuffled(y, {&row[2], 1}, x, 2);
  EXPECT_TRUE(torch::equal(whole, by_layers));
  const auto ours = gradients(whole, dy.to(torch::kHalf), x, row);
  const auto theirs = gradients(by_layers, dy.to(torch::kHalf), x, row);
  for (std::size_t g = 0; g < ours.size(); ++g) EXPECT_TRUE(torch::equal(ours[g], theirs[g])) << g;
}

TEST_F(ConvActGpuTest, AGraphReplaysNewWeights) {
  torch::NoGradGuard no_grad;
  ConvLayer l = layer(64, 64, Activation::prelu, torch::kHalf);
  const torch::Tensor x = picture(1, 64, 40, 50, torch::kHalf);
  torch::Tensor y;
  at::cuda::CUDAGraph graph;
  {
    const c10::cuda::CUDAStreamGuard side(c10::cuda::getStreamFromPool());
    y = conv3x3_row(x, {&l, 1});
    c10::cuda::getCurrentCUDAStream().synchronize();
    graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    y = conv3x3_row(x, {&l, 1});
    graph.capture_end();
  }
  for (int round = 0; round < 3; ++round) {
    l.weight.copy_(layer(64, 64, Activation::prelu, torch::kHalf).weight);
    x.copy_(picture(1, 64, 40, 50, torch::kHalf));
    torch::cuda::synchronize();
    graph.replay();
    torch::cuda::synchronize();
    EXPECT_LE(relative(y, by_torch(x.to(torch::kFloat), {&l, 1})), rounding(torch::kHalf));
  }
}

TEST_F(ConvActGpuTest, TheSameBitsEachTime) {
  std::vector<ConvLayer> l{layer(64, 64, Activation::prelu, torch::kBFloat16),
                           layer(64, 64, Activation::prelu, torch::kBFloat16)};
  for (ConvLayer& one : l) want_gradients(one);
  torch::Tensor x = picture(16, 64, 64, 64, torch::kBFloat16).set_requires_grad(true);
  const torch::Tensor dy = picture(16, 64, 64, 64, torch::kBFloat16);
  const auto first = gradients(conv3x3_row(x, l), dy, x, l);
  for (int i = 0; i < 20; ++i) {
    const auto again = gradients(conv3x3_row(x, l), dy, x, l);
    for (std::size_t g = 0; g < first.size(); ++g) ASSERT_TRUE(torch::equal(first[g], again[g])) << g;
  }
}

TEST_F(ConvActGpuTest, WhatIsNotANumberStaysSo) {
  torch::NoGradGuard no_grad;
  for (const torch::ScalarType type : {torch::kHalf, torch::kBFloat16}) {
    const torch::Tensor x = picture(1, 64, 20, 20, type);
    x[0][3][5][5] = std::numeric_limits<float>::quiet_NaN();
    x[0][7][12][3] = std::numeric_limits<float>::infinity();
    x[0][9][17][17] = -std::numeric_limits<float>::infinity();
    x.select(2, 0).fill_(1e-7);  // denormal in float16
    for (const Activation activation : kActivations) {
      const ConvLayer l = layer(64, 64, activation, type);
      const torch::Tensor y = conv3x3_row(x, {&l, 1}), reference = by_torch(x.to(torch::kFloat), {&l, 1});
      EXPECT_TRUE(torch::equal(y.isnan(), reference.isnan())) << static_cast<int>(activation);
      EXPECT_TRUE(torch::equal(y.isinf(), reference.isinf())) << static_cast<int>(activation);
    }
  }
}

TEST_F(ConvActGpuTest, WhatItCannotDoIsTorchs) {
  const torch::Tensor x = normal({1, 64, 8, 8});
  const ConvLayer l = layer(64, 64, Activation::none, torch::kHalf);
  EXPECT_EQ(own_conv_takes(x, {&l, 1}), 0U);
  EXPECT_EQ(own_conv_takes(x.cpu().to(torch::kHalf), {&l, 1}), 0U);
  EXPECT_EQ(own_conv_takes(x.to(torch::kHalf), {&l, 1}), 1U);
  const ConvLayer wide = layer(256, 64, Activation::none, torch::kHalf);
  EXPECT_EQ(own_conv_takes(normal({1, 256, 8, 8}).to(torch::kHalf), {&wide, 1}), 0U);
}

TEST_F(ConvActGpuTest, OnlyTheLayerThatDoesNotFitIsTorchs) {
  std::vector<ConvLayer> row{
      layer(3, 64, Activation::prelu, torch::kHalf), layer(64, 64, Activation::relu, torch::kHalf),
      layer(64, 256, Activation::prelu, torch::kHalf), layer(256, 64, Activation::relu, torch::kHalf),
      layer(64, 12, Activation::none, torch::kHalf)};
  for (ConvLayer& l : row) want_gradients(l);
  const torch::Tensor x = normal({2, 3, 20, 30}).set_requires_grad(true);
  torch::Tensor y;
  {
    const Autocast autocast(torch::kHalf);
    EXPECT_EQ(own_conv_takes(x, row), 2U);
    EXPECT_EQ(own_conv_takes(normal({2, 64, 20, 30}), std::span(row).subspan(2)), 0U);
    EXPECT_EQ(own_conv_takes(normal({2, 64, 20, 30}), std::span(row).last(1)), 1U);
    y = conv3x3_row_shuffled(x, row, x, 2);
  }
  const torch::Tensor reference = at::pixel_shuffle(by_torch(x, row) + x.repeat_interleave(4, 1), 2);
  EXPECT_LE(relative(y, reference), 2e-3);
  torch::Tensor torchs;
  {
    const Autocast autocast(torch::kHalf);
    torchs = at::pixel_shuffle(by_torch(x, row) + x.repeat_interleave(4, 1), 2);
  }
  const torch::Tensor dy = normal(y.sizes());
  const auto ours = gradients(y, dy, x, row), theirs = gradients(torchs, dy, x, row),
             exact = gradients(reference, dy, x, row);
  for (std::size_t g = 0; g < ours.size(); ++g)
    EXPECT_LE(relative(ours[g], exact[g]), 1.25 * relative(theirs[g], exact[g]) + 0.002) << "gradient " << g;
}

// What is added at the end: of another size or type the kernels leave it to torch, or to torch's error.
TEST_F(ConvActGpuTest, WhatIsAddedHasToFit) {
  const torch::Tensor x = picture(2, 64, 9, 10, torch::kHalf);
  const ConvLayer l = layer(64, 12, Activation::none, torch::kHalf),
                  same = layer(64, 64, Activation::none, torch::kHalf);
  const auto shuffled = [&](const torch::Tensor& added) {
    return own_conv_takes(x, {&l, 1}, {.picture = added, .scale = 2});
  };
  EXPECT_EQ(shuffled(normal({2, 3, 9, 10})), shuffles() ? 1U : 0U);
  EXPECT_EQ(shuffled(normal({2, 3, 9, 10}).to(torch::kDouble)), 0U);
  EXPECT_EQ(shuffled(normal({2, 3, 9, 10}).cpu()), 0U);
  EXPECT_EQ(shuffled(normal({2, 1, 9, 10})), 0U);
  EXPECT_EQ(shuffled(normal({2, 3, 9, 9})), 0U);
  const auto added = [&](const torch::Tensor& residual) {
    return own_conv_takes(x, {&same, 1}, {.residual = residual});
  };
  EXPECT_EQ(added(x), 1U);
  EXPECT_EQ(added(x.to(torch::kFloat)), 0U);
  EXPECT_EQ(added(x.narrow(0, 0, 1)), 0U);
  EXPECT_THROW(conv3x3_row_shuffled(x, {&l, 1}, normal({2, 3, 9, 9}), 2), c10::Error);
}

TEST_F(ConvActGpuTest, AResidualIsAdded) {
  for (const torch::ScalarType type : {torch::kHalf, torch::kBFloat16}) {
    for (int i = 0; i < 60; ++i) {
      const int n = one_of({1, 2, 3}), h = one_of({1, 2, 31, 33, 67, 200}), w = one_of({1, 3, 8, 64, 259});
      const int in = one_of({16, 52, 64, 96, 192}), out = one_of({12, 32, 48, 52, 64, 128});
      SCOPED_TRACE(testing::Message() << n << " × " << in << " × " << h << " × " << w << " to " << out);
      std::vector<ConvLayer> l{layer(in, out, Activation::none, type)};
      want_gradients(l.front());
      const double factor = i % 2 == 0 ? 1 : 0.2;
      const torch::Tensor x = picture(n, in, h, w, type).set_requires_grad(true), dy = picture(n, out, h, w, type);
      const torch::Tensor residual =
          (i % 3 == 0 ? normal({n, out, h, w}).to(type) : picture(n, out, h, w, type)).set_requires_grad(true);
      ASSERT_EQ(own_conv_takes(x, l, {.residual = residual}), 1U);
      const torch::Tensor y = conv3x3_add(x, l[0].weight, l[0].bias, residual, factor);
      const torch::Tensor x2 = x.detach().to(torch::kFloat).set_requires_grad(true);
      const torch::Tensor reference = residual.detach().to(torch::kFloat) + factor * by_torch(x2, l);
      EXPECT_LE(relative(y, reference), rounding(type, y.numel()));
      const torch::Tensor of_residual = torch::autograd::grad({y}, {residual}, {dy}, /*retain_graph=*/true)[0];
      EXPECT_TRUE(torch::equal(of_residual, dy));
      const auto ours = gradients(y, dy, x, l), theirs = gradients(reference, dy.to(torch::kFloat), x2, l);
      for (std::size_t g = 0; g < ours.size(); ++g)
        EXPECT_LE(relative(ours[g], theirs[g]), 2.5 * rounding(type)) << "gradient " << g;
    }
  }
}

// More than 64 channels go back in parts; one slope of all of them is added up from all parts.
TEST_F(ConvActGpuTest, ARowOfManyChannels) {
  const torch::ScalarType type = torch::kBFloat16;
  std::vector<ConvLayer> row{layer(3, 96, Activation::prelu, type), layer(96, 160, Activation::silu, type),
                             layer(160, 52, Activation::none, type), layer(52, 128, Activation::prelu, type)};
  row.back().slope = torch::full({1}, 0.2F, torch::kCUDA);
  for (ConvLayer& l : row) want_gradients(l);
  const torch::Tensor x = normal({2, 3, 37, 41}).set_requires_grad(true);
  torch::Tensor y, torchs;
  {
    const Autocast autocast(type);
    ASSERT_EQ(own_conv_takes(x, row), row.size());
    y = conv3x3_row(x, row);
    torchs = by_torch(x, row);
  }
  const torch::Tensor reference = by_torch(x, row), dy = picture(2, 128, 37, 41, type);
  const auto ours = gradients(y, dy, x, row), theirs = gradients(torchs, dy, x, row),
             exact = gradients(reference, dy.to(torch::kFloat), x, row);
  for (std::size_t g = 0; g < ours.size(); ++g)
    EXPECT_LE(relative(ours[g], exact[g]), 1.25 * relative(theirs[g], exact[g]) + 0.002) << "gradient " << g;
}

TEST_F(ConvActGpuTest, WhatIsFrozenHasNoGradient) {
  std::vector<ConvLayer> row{layer(3, 64, Activation::prelu, torch::kHalf),
                             layer(64, 64, Activation::prelu, torch::kHalf),
                             layer(64, 64, Activation::relu, torch::kHalf)};
  row[1].weight.set_requires_grad(true);
  row[2].bias.set_requires_grad(true);
  const torch::Tensor x = normal({2, 3, 20, 30}).to(torch::kHalf), dy = picture(2, 64, 20, 30, torch::kHalf);
  conv3x3_row(x, row).backward(dy);
  const torch::Tensor weight = row[1].weight.grad().clone(), bias = row[2].bias.grad().clone();
  for (ConvLayer& l : row)
    for (torch::Tensor* t : {&l.weight, &l.bias, &l.slope})
      if (t->defined() && !t->requires_grad()) {
        EXPECT_FALSE(t->grad().defined());
        t->set_requires_grad(true);
      }
  const auto all = torch::autograd::grad({conv3x3_row(x, row)}, {row[1].weight, row[2].bias}, {dy});
  EXPECT_TRUE(torch::equal(weight, all[0]));
  EXPECT_TRUE(torch::equal(bias, all[1]));
}

// One pixel or one row, repeated without memory of its own; pixels in another order; nothing at all.
TEST_F(ConvActGpuTest, AnyTensorIsTaken) {
  const torch::NoGradGuard no_grad;
  const ConvLayer l = layer(64, 64, Activation::relu, torch::kHalf);
  const torch::Tensor pixel = picture(1, 64, 1, 1, torch::kHalf), row = picture(1, 64, 1, 30, torch::kHalf);
  const torch::Tensor whole = picture(2, 128, 40, 50, torch::kHalf);
  for (const torch::Tensor& x :
       {pixel.expand({2, 64, 20, 30}), row.expand({2, 64, 20, 30}), whole.narrow(1, 64, 64), whole.narrow(1, 4, 64),
        whole.narrow(1, 0, 64).narrow(2, 3, 20).narrow(3, 5, 30), whole.narrow(1, 0, 64).transpose(2, 3)}) {
    ASSERT_EQ(own_conv_takes(x, {&l, 1}), 1U);
    const torch::Tensor y = conv3x3_row(x, {&l, 1});
    EXPECT_LE(relative(y, by_torch(x.to(torch::kFloat), {&l, 1})), rounding(torch::kHalf)) << x.strides();
  }
  const Autocast autocast(torch::kHalf);
  EXPECT_EQ(conv3x3_row(whole.narrow(0, 0, 0).narrow(1, 0, 64), {&l, 1}).sizes(),
            (std::vector<std::int64_t>{0, 64, 40, 50}));
}

TEST(ConvActTest, OnTheCpuRowsAreTorchs) {
  torch::manual_seed(3);
  std::vector<ConvLayer> row;
  for (const Activation activation : kActivations)
    row.push_back({torch::randn({3, 3, 3, 3}), torch::randn({3}), activation,
                   activation == Activation::prelu ? torch::rand({3}) : torch::Tensor()});
  const torch::Tensor x = torch::randn({2, 3, 9, 7});
  EXPECT_EQ(own_conv_takes(x, row), 0U);
  EXPECT_TRUE(torch::equal(conv3x3_row(x, row), by_torch(x, row)));
  EXPECT_TRUE(torch::equal(conv3x3_add(x, row[0].weight, row[0].bias, x, 0.2),
                           at::add(x, by_torch(x, std::span(row).first(1)), 0.2)));
  row.push_back({torch::randn({12, 3, 3, 3}), torch::randn({12})});
  EXPECT_TRUE(torch::allclose(conv3x3_row_shuffled(x, row, x, 2),
                              at::pixel_shuffle(by_torch(x, row) + x.repeat_interleave(4, 1), 2)));
}

}  // namespace
}  // namespace reelgrad
