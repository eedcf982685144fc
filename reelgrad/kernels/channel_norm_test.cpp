// The reference by itself: what a norm promises, and its gradients against differences.
#include "reelgrad/kernels/channel_norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace reelgrad {
namespace {

class ChannelNormReference : public testing::Test {
 protected:
  static constexpr int kCount = 5, kChannels = 12;
  static constexpr float kEpsilon = 1e-3F;

  void SetUp() override {
    std::normal_distribution<float> normal;
    for (std::vector<float>* list : {&x_, &dy_, &weight_, &bias_})
      for (float& v : *list) v = normal(random_);
  }

  static Pixels pixels(std::vector<float>& values) { return {values.data(), kCount, kChannels}; }
  static ConvVector vector(const std::vector<float>& values) { return {values.data(), ElementType::f32, kChannels}; }

  std::vector<float> normed() {
    std::vector<float> y(x_.size());
    cpu::channel_norm(
        {.x = pixels(x_), .y = pixels(y), .weight = vector(weight_), .bias = vector(bias_), .epsilon = kEpsilon});
    return y;
  }

  // Of what is differentiated: the sum of dy times the result.
  double difference(float& value) {
    constexpr float kStep = 1e-2F;
    const auto sum = [&](float at) {
      value = at;
      const std::vector<float> y = normed();
      double all = 0;
      for (std::size_t i = 0; i < y.size(); ++i) all += static_cast<double>(dy_[i]) * y[i];
      return all;
    };
    const float before = value;
    const double above = sum(before + kStep), below = sum(before - kStep);
    value = before;
    return (above - below) / (2 * static_cast<double>(kStep));
  }

  std::mt19937 random_{6};
  std::vector<float> x_ = std::vector<float>(kCount * kChannels), dy_ = x_, weight_ = std::vector<float>(kChannels),
                     bias_ = weight_;
};

TEST_F(ChannelNormReference, APixelHasMeanAndDeviationOfTheParameters) {
  std::ranges::fill(weight_, 3.F);
  std::ranges::fill(bias_, 0.5F);
  for (float& v : x_) v = 7 + 20 * v;  // beside which epsilon is nothing
  const std::vector<float> y = normed();
  for (std::size_t first = 0; first < y.size(); first += kChannels) {
    double mean = 0, variance = 0;
    for (std::size_t c = 0; c < kChannels; ++c) mean += y[first + c] / static_cast<double>(kChannels);
    for (std::size_t c = 0; c < kChannels; ++c)
      variance += (y[first + c] - mean) * (y[first + c] - mean) / static_cast<double>(kChannels);
    EXPECT_NEAR(mean, 0.5, 1e-5);
    EXPECT_NEAR(variance, 9, 1e-3);
  }
}

TEST_F(ChannelNormReference, GradientsAreDifferences) {
  std::vector<float> dx(x_.size()), of_weight(weight_.size()), of_bias(bias_.size());
  cpu::channel_norm_backward({.x = pixels(x_),
                              .dy = pixels(dy_),
                              .dx = pixels(dx),
                              .weight = vector(weight_),
                              .epsilon = kEpsilon,
                              .of_weight = of_weight.data(),
                              .of_bias = of_bias.data()});
  constexpr double kBound = 5e-3;  // of the steps
  for (std::size_t i = 0; i < x_.size(); i += 7) EXPECT_NEAR(dx[i], difference(x_[i]), kBound) << i;
  for (std::size_t c = 0; c < weight_.size(); ++c) {
    EXPECT_NEAR(of_weight[c], difference(weight_[c]), kBound) << c;
    EXPECT_NEAR(of_bias[c], difference(bias_[c]), kBound) << c;
  }
}

}  // namespace
}  // namespace reelgrad
