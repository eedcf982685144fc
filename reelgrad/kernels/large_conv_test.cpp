// The reference by itself: what single taps do, and what makes gradients gradients.
#include "reelgrad/kernels/large_conv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace reelgrad {
namespace {

class LargeConvReference : public testing::Test {
 protected:
  static constexpr int kBatch = 2, kHeight = 11, kWidth = 12, kAll = 24;  // channels
  using Values = std::vector<float>;

  Values normal(int count) {
    Values values(static_cast<std::size_t>(count));
    for (float& v : values) v = normal_(random_);
    return values;
  }
  Values picture() { return normal(kBatch * kHeight * kWidth * kAll); }

  static ConvPicture shown(const Values& values) {
    return {
        const_cast<float*>(values.data()), kBatch, kHeight, kWidth, kAll, kAll, kWidth * kAll, kHeight * kWidth * kAll};
  }

  static LargeWeights weights(const Values& values) {
    return {.data = values.data(), .out_step = kLargeChannels * kLargeTaps, .in_step = kLargeTaps, .tap_step = 1};
  }

  static Values convolved(const LargeWeights& w, const Values& x) {
    Values y(x.size());
    cpu::large_conv(w, shown(x), shown(y));
    return y;
  }

  static std::size_t at(int n, int y, int x, int c) {
    return static_cast<std::size_t>(((n * kHeight + y) * kWidth + x) * kAll + c);
  }

  // Of the channels that are convolved.
  static double product(const Values& a, const Values& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
      if (i % kAll < kLargeChannels) sum += static_cast<double>(a[i]) * b[i];
    return sum;
  }

  std::mt19937 random_{3};
  std::normal_distribution<float> normal_;
  const int kCount = kLargeChannels * kLargeChannels * kLargeTaps;
};

TEST_F(LargeConvReference, ATapMovesAChannel) {
  const Values x = picture(), bias = normal(kLargeChannels);
  constexpr int kOut = 3, kIn = 14, kRow = 2, kColumn = 13;  // 6 pixels up, 5 to the right
  Values weight(static_cast<std::size_t>(kCount));
  weight[(kOut * kLargeChannels + kIn) * kLargeTaps + kRow * kLargeSide + kColumn] = 2;
  LargeWeights w = weights(weight);
  w.bias = {bias.data(), ElementType::f32, kLargeChannels};
  const Values y = convolved(w, x);
  for (int n = 0; n < kBatch; ++n)
    for (int row = 0; row < kHeight; ++row)
      for (int column = 0; column < kWidth; ++column)
        for (int c = 0; c < kAll; ++c) {
          const bool inside = row >= 6 && column + 5 < kWidth;
          const float seen = c == kOut && inside ? 2 * x[at(n, row - 6, column + 5, kIn)] : 0;
          const float expected =
              c < kLargeChannels ? seen + bias[static_cast<std::size_t>(c)] : x[at(n, row, column, c)];
          ASSERT_FLOAT_EQ(y[at(n, row, column, c)], expected) << row << ", " << column << ", channel " << c;
        }
}

// <dy, conv(x)> = <back(dy), x>, and, linear in the weights, = <dW, W>.
TEST_F(LargeConvReference, GradientsAreThoseOfTheProduct) {
  const Values x = picture(), dy = picture(), weight = normal(kCount);
  const LargeWeights w = weights(weight);
  const double expected = product(dy, convolved(w, x));
  EXPECT_NEAR(product(convolved(backward_weights(w), dy), x), expected, 1e-5 * std::abs(expected));

  Values of_weight(weight.size()), of_bias(kLargeChannels);
  cpu::large_gradients({.x = shown(x),
                        .dy = shown(dy),
                        .weight = of_weight.data(),
                        .out_step = w.out_step,
                        .in_step = w.in_step,
                        .tap_step = w.tap_step,
                        .bias = of_bias.data()});
  double of_weights = 0;
  for (std::size_t i = 0; i < weight.size(); ++i) of_weights += static_cast<double>(of_weight[i]) * weight[i];
  EXPECT_NEAR(of_weights, expected, 1e-5 * std::abs(expected));

  Values sums(kLargeChannels);
  for (std::size_t i = 0; i < dy.size(); ++i)
    if (i % kAll < kLargeChannels) sums[i % kAll] += dy[i];
  for (std::size_t c = 0; c < sums.size(); ++c) EXPECT_NEAR(of_bias[c], sums[c], 1e-4);
}

}  // namespace
}  // namespace reelgrad
