// cuda/'s convolutions against cpu/'s: outputs start as NaN, and what lies around them must stay as it was.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "reelgrad/kernels/conv.h"
#include "reelgrad/kernels/test_card_picture.h"

namespace reelgrad {
namespace {

class ConvKernelsGpuTest : public testing::TestWithParam<ElementType> {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0 || !cuda::has_conv(0)) {
      cudaGetLastError();
      GTEST_SKIP() << "no card of compute capability 9.0";
    }
  }

  int one_of(std::initializer_list<int> values) { return values.begin()[random_() % values.size()]; }

  ConvActivation any_activation() { return static_cast<ConvActivation>(random_() % 7); }

  // Weights on the host and, packed, on the card; kept until the next.
  ConvWeights weights(int out, int in) {
    weight_.assign(static_cast<std::size_t>(out * in * 9), 0);
    vectors_.assign(static_cast<std::size_t>(2 * out), 0);
    std::normal_distribution<float> normal;
    for (float& v : weight_) {
      v = widened(element(), narrowed(element(), normal(random_) / (3 * std::sqrt(static_cast<float>(in)))));
    }
    for (float& v : vectors_) v = 0.3F * normal(random_);
    return {.weight = weight_.data(),
            .out = out,
            .in = in,
            .out_step = in * 9,
            .in_step = 9,
            .tap_step = 1,
            .bias = {vectors_.data(), ElementType::f32, out},
            .slope = {vectors_.data() + out, ElementType::f32, out}};
  }

  // `host` with its numbers on the card instead, which are kept until the next.
  ConvWeights on_card(ConvWeights host) {
    card_weight_ = std::make_unique<GuardedBytes>(weight_.size() * sizeof(float));
    card_weight_->write(weight_.data());
    card_vectors_ = std::make_unique<GuardedBytes>(vectors_.size() * sizeof(float));
    card_vectors_->write(vectors_.data());
    host.weight = card_weight_->data();
    host.bias.data = card_vectors_->data();
    host.slope.data = card_vectors_->data() + static_cast<std::size_t>(host.out) * sizeof(float);
    return host;
  }

  std::unique_ptr<GuardedBytes> packed(const ConvWeights& card, int block) const {
    auto bytes = std::make_unique<GuardedBytes>(packed_bytes(card.out, card.in, block));
    const ConvPacking packing{card, block, bytes->data()};
    cuda::pack_weights(element(), {&packing, 1}, nullptr);
    return bytes;
  }

  static ElementType element() { return GetParam(); }

  std::mt19937 random_{17};
  std::vector<float> weight_, vectors_;
  std::unique_ptr<GuardedBytes> card_weight_, card_vectors_;
};

TEST_P(ConvKernelsGpuTest, Forward) {
  for (int round = 0; round < 60; ++round) {
    const int n = one_of({1, 2}), h = one_of({1, 7, 33}), w = one_of({1, 8, 19});
    const int in = one_of({8, 16, 24, 32, 48, 64, 96, 160}), out = one_of({16, 24, 64, 96, 192});
    const ConvActivation activation = any_activation();
    SCOPED_TRACE(testing::Message() << n << " × " << h << " × " << w << ", " << in << " to " << out << ", activation "
                                    << static_cast<int>(activation));
    Picture x(element(), n, h, w, in), y(element(), n, h, w, out), z(element(), n, h, w, out);
    x.fill(random_);
    const ConvWeights host = weights(out, in);
    const auto bytes = packed(on_card(host), kConvBlock);
    cuda::conv3x3({element(), x.card, bytes->data(), activation, y.card, round % 2 == 0 ? z.card : ConvPicture{}},
                  nullptr);
    cpu::conv3x3(host, x.host, activation, y.host, z.host);
    EXPECT_LE(relative(y.read(), y.values), half_unit(element()));
    if (round % 2 == 0) {
      EXPECT_LE(relative(z.read(), z.values), half_unit(element()));
    }
    x.read();
    bytes->read<float>();
  }
}

TEST_P(ConvKernelsGpuTest, ThereAndBack) {
  for (int round = 0; round < 40; ++round) {
    const int n = one_of({1, 2}), h = one_of({1, 7, 33}), w = one_of({1, 8, 19});
    const int in = one_of({8, 16, 24, 48, 64}), out = one_of({8, 16, 24, 48, 64});
    const ConvActivation activation = any_activation();
    SCOPED_TRACE(testing::Message() << n << " × " << h << " × " << w << ", " << in << " to " << out << ", activation "
                                    << static_cast<int>(activation));
    Picture dz(element(), n, h, w, out), z(element(), n, h, w, in), dx(element(), n, h, w, in),
        x(element(), n, h, w, in);
    for (Picture* p : {&dz, &z, &x}) p->fill(random_);
    ConvWeights host = weights(out, in);
    std::vector<float> slopes(static_cast<std::size_t>(in), 0.2F), bias(slopes.size()), slope(slopes.size());
    GuardedBytes card_slopes(slopes.size() * sizeof(float));
    card_slopes.write(slopes.data());
    const ConvVector below{slopes.data(), ElementType::f32, in};
    ConvVector card_below = below;
    card_below.data = card_slopes.data();
    const auto bytes = packed(backward_weights(on_card(host), card_below), kConvBlock);
    const int rows = cuda::conv_sum_rows(dz.card);
    GuardedBytes sums(static_cast<std::size_t>(rows) * kConvSumRow * sizeof(float));
    GuardedBytes vectors(2 * slopes.size() * sizeof(float));
    auto* const card_bias = reinterpret_cast<float*>(vectors.data());
    auto* const card_sums = reinterpret_cast<float*>(sums.data());
    cuda::conv3x3_backward({element(), dz.card, bytes->data(), activation, z.card, dx.card, card_sums}, nullptr);
    const ConvSums job{card_sums, rows, in, card_bias, card_bias + in, in};
    cuda::conv_add_sums({&job, 1}, nullptr);
    cpu::conv3x3_backward(backward_weights(host, below), dz.host, activation, z.host, dx.host, bias.data(),
                          slope.data());
    EXPECT_LE(relative(dx.read(), dx.values), half_unit(element()));
    sums.read<float>();
    std::vector<float> found = vectors.read<float>(), expected = bias;
    expected.insert(expected.end(), slope.begin(), slope.end());
    EXPECT_LE(relative(found, expected), 1e-4);

    GuardedBytes gradient(weight_.size() * sizeof(float)), workspace(cuda::weight_gradient_bytes(1));
    std::vector<float> reference(weight_.size());
    ConvWeightGradient job_of_weights{x.card, dz.card, out, in, reinterpret_cast<float*>(gradient.data()),
                                      in * 9, 9,       1};
    cuda::conv_weight_gradients(element(), {&job_of_weights, 1}, workspace.data(), nullptr);
    cpu::conv_weight_gradient({x.host, dz.host, out, in, reference.data(), in * 9, 9, 1});
    EXPECT_LE(relative(gradient.read<float>(), reference), 1e-4);
    workspace.read<float>();
  }
}

TEST_P(ConvKernelsGpuTest, ResidualAdded) {
  for (int round = 0; round < 30; ++round) {
    const int n = one_of({1, 2}), h = one_of({1, 7, 33, 130}), w = one_of({1, 8, 19});
    const int in = one_of({8, 52, 64, 160}), out = one_of({16, 24, 64, 96});
    SCOPED_TRACE(testing::Message() << n << " × " << h << " × " << w << ", " << in << " to " << out);
    Picture x(element(), n, h, w, (in + kConvUnit - 1) / kConvUnit * kConvUnit), y(element(), n, h, w, out),
        residual(element(), n, h, w, out);
    for (Picture* p : {&x, &residual}) p->fill(random_);
    x.card.channels = in;  // what lies beyond must not matter
    const ConvWeights host = weights(out, in);
    const auto bytes = packed(on_card(host), kConvBlock);
    cuda::conv3x3({.element = element(),
                   .x = x.card,
                   .packed = bytes->data(),
                   .y = y.card,
                   .residual = residual.card,
                   .factor = 0.2F},
                  nullptr);
    cpu::conv3x3(host, x.host, ConvActivation::none, y.host, {});
    for (std::size_t i = 0; i < y.values.size(); ++i) y.values[i] = residual.values[i] + 0.2F * y.values[i];
    EXPECT_LE(relative(y.read(), y.values), half_unit(element()));
    residual.read();
  }
}

// No pixel, no sum: vectors of zeros, nothing written elsewhere.
TEST_P(ConvKernelsGpuTest, BatchOfNothing) {
  constexpr int kChannels = 64;
  const ConvPicture none = dense(nullptr, 0, 20, 30, kChannels);
  const ConvWeights host = weights(kChannels, kChannels);
  const auto bytes = packed(on_card(host), kConvBlock);
  EXPECT_NO_THROW(cuda::conv3x3({.element = element(), .x = none, .packed = bytes->data(), .y = none}, nullptr));
  EXPECT_NO_THROW(
      cuda::conv3x3_shuffled({.element = element(), .x = none, .packed = bytes->data(), .out = 12}, nullptr));
  EXPECT_NO_THROW(
      cuda::conv3x3_backward({.element = element(), .dz = none, .packed = bytes->data(), .dz_below = none}, nullptr));
  GuardedBytes gradient(weight_.size() * sizeof(float)), workspace(cuda::weight_gradient_bytes(1));
  const ConvWeightGradient job{none,          none, kChannels, kChannels, reinterpret_cast<float*>(gradient.data()),
                               kChannels * 9, 9,    1};
  cuda::conv_weight_gradients(element(), {&job, 1}, workspace.data(), nullptr);
  EXPECT_EQ(gradient.read<float>(), std::vector<float>(weight_.size()));

  GuardedBytes sums(std::size_t{kConvTopSumRows} * kConvSumRow * sizeof(float)), bias(kChannels * sizeof(float));
  auto* const rows = reinterpret_cast<float*>(sums.data());
  cuda::conv_top_gradient({.element = element(), .channels = kChannels, .dz = none, .sums = rows}, nullptr);
  const ConvSums all{rows, kConvTopSumRows, kChannels, reinterpret_cast<float*>(bias.data()), nullptr, 0};
  cuda::conv_add_sums({&all, 1}, nullptr);
  EXPECT_EQ(bias.read<float>(), std::vector<float>(kChannels));
}

INSTANTIATE_TEST_SUITE_P(Types, ConvKernelsGpuTest, testing::Values(ElementType::f16, ElementType::bf16),
                         [](const auto& info) { return info.param == ElementType::f16 ? "fp16" : "bf16"; });

}  // namespace
}  // namespace reelgrad
