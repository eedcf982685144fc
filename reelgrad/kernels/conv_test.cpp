// The reference by itself: against what a convolution by hand gives, and its gradients against differences.
#include "reelgrad/kernels/conv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace reelgrad {
namespace {

struct FloatPicture {
  std::vector<float> values;
  ConvPicture picture;

  FloatPicture(int batch, int height, int width, int channels)
      : values(static_cast<std::size_t>(batch * height * width * channels)),
        picture{values.data(),
                batch,
                height,
                width,
                channels,
                channels,
                static_cast<std::int64_t>(width) * channels,
                static_cast<std::int64_t>(height) * width * channels} {}
  FloatPicture(const FloatPicture&) = delete;
};

class ConvReference : public testing::Test {
 protected:
  static constexpr int kIn = 3, kOut = 4, kBatch = 2, kHeight = 4, kWidth = 5;

  void SetUp() override {
    for (std::vector<float>* list : {&weight_, &bias_, &slope_, &x_.values})
      for (float& v : *list) v = normal_(random_);
  }

  ConvWeights weights() const {
    return {.weight = weight_.data(),
            .out = kOut,
            .in = kIn,
            .out_step = kIn * 9,
            .in_step = 9,
            .tap_step = 1,
            .bias = {bias_.data(), ElementType::f32, kOut},
            .slope = {slope_.data(), ElementType::f32, kOut}};
  }

  // Half the sum of squares of what the activation gives, whose gradient is that itself.
  double loss(ConvActivation activation) const {
    FloatPicture y(kBatch, kHeight, kWidth, kOut);
    cpu::conv3x3(weights(), x_.picture, activation, y.picture, {});
    double sum = 0;
    for (const float v : y.values) sum += 0.5 * static_cast<double>(v) * v;
    return sum;
  }

  double difference(ConvActivation activation, float& value) const {
    constexpr float kStep = 1e-3F;
    const float before = value;
    value = before + kStep;
    const double above = loss(activation);
    value = before - kStep;
    const double below = loss(activation);
    value = before;
    return (above - below) / (2 * static_cast<double>(kStep));
  }

  std::mt19937 random_{3};
  std::normal_distribution<float> normal_;
  mutable std::vector<float> weight_ = std::vector<float>(kOut * kIn * 9), bias_ = std::vector<float>(kOut),
                             slope_ = std::vector<float>(kOut);
  mutable FloatPicture x_{kBatch, kHeight, kWidth, kIn};
};

TEST_F(ConvReference, ATapMovesThePicture) {
  std::vector<float> weight(9);
  for (int tap = 0; tap < 9; ++tap) {
    std::ranges::fill(weight, 0.F);
    weight[static_cast<std::size_t>(tap)] = 1;
    const ConvWeights one{.weight = weight.data(), .out = 1, .in = 1, .out_step = 9, .in_step = 9, .tap_step = 1};
    FloatPicture x(1, 3, 4, 1), y(1, 3, 4, 1);
    for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] = static_cast<float>(i + 1);
    cpu::conv3x3(one, x.picture, ConvActivation::none, y.picture, {});
    for (int row = 0; row < 3; ++row) {
      for (int column = 0; column < 4; ++column) {
        const int from_row = row + tap / 3 - 1, from_column = column + tap % 3 - 1;
        const bool inside = from_row >= 0 && from_row < 3 && from_column >= 0 && from_column < 4;
        EXPECT_EQ(y.values[static_cast<std::size_t>(row * 4 + column)],
                  inside ? static_cast<float>(from_row * 4 + from_column + 1) : 0.F);
      }
    }
  }
}

TEST_F(ConvReference, GradientsAreDifferences) {
  for (const ConvActivation activation :
       {ConvActivation::none, ConvActivation::relu, ConvActivation::slope, ConvActivation::silu, ConvActivation::mish,
        ConvActivation::gelu, ConvActivation::sigmoid}) {
    SCOPED_TRACE(static_cast<int>(activation));
    FloatPicture y(kBatch, kHeight, kWidth, kOut), z(kBatch, kHeight, kWidth, kOut), dz(kBatch, kHeight, kWidth, kOut);
    cpu::conv3x3(weights(), x_.picture, activation, y.picture, z.picture);

    // A convolution that does nothing, backward, is the activation's gradient alone.
    std::vector<float> nothing(kOut * kOut * 9);
    for (std::size_t c = 0; c < kOut; ++c) nothing[(c * kOut + c) * 9 + 4] = 1;
    const ConvWeights same{
        .weight = nothing.data(), .out = kOut, .in = kOut, .out_step = kOut * 9, .in_step = 9, .tap_step = 1};
    std::vector<float> bias(kOut), slope(kOut);
    cpu::conv3x3_backward(backward_weights(same, weights().slope), y.picture, activation, z.picture, dz.picture,
                          bias.data(), slope.data());
    FloatPicture dx(kBatch, kHeight, kWidth, kIn);
    cpu::conv3x3_backward(backward_weights(weights(), {}), dz.picture, ConvActivation::none, {}, dx.picture, nullptr,
                          nullptr);
    std::vector<float> gradient(weight_.size());
    cpu::conv_weight_gradient({x_.picture, dz.picture, kOut, kIn, gradient.data(), kIn * 9, 9, 1});

    const auto expect = [&](float ours, float& of) {
      EXPECT_NEAR(ours, difference(activation, of), 0.02 + 0.01 * std::abs(ours));
    };
    for (const std::size_t i : {0, 13, 50, 107}) expect(gradient[i], weight_[i]);
    for (const std::size_t i : {0, 31, 77, 119}) expect(dx.values[i], x_.values[i]);
    for (std::size_t c = 0; c < kOut; ++c) {
      expect(bias[c], bias_[c]);
      if (activation == ConvActivation::slope) expect(slope[c], slope_[c]);
    }
  }
}

TEST_F(ConvReference, PackedBytesHoldWeightsAndVectors) {
  EXPECT_EQ(packed_bytes(64, 3, 64), 9U * 64 * 64 * 2 + 2 * 64 * 4);
  EXPECT_EQ(packed_bytes(65, 64, 64), 2 * packed_bytes(64, 64, 64));
  EXPECT_EQ(packed_bytes(64, 65, 64), packed_bytes(64, 64, 64) + 9U * 64 * 64 * 2);
  EXPECT_EQ(packed_bytes(12, 64, conv_block_of_shuffled(12)), 9U * 16 * 64 * 2 + 2 * 16 * 4);
}

}  // namespace
}  // namespace reelgrad
