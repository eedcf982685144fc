// cuda/'s layer norm against cpu/'s: outputs start as NaN, and what lies around them must stay as it was.
#include "reelgrad/kernels/channel_norm.h"
#include "reelgrad/kernels/test_card_picture.h"

namespace reelgrad {
namespace {

class ChannelNormKernelsGpuTest : public testing::TestWithParam<ElementType> {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0 || !cuda::warp::has_conv(0)) {
      cudaGetLastError();
      GTEST_SKIP() << "no card of compute capability 8.0 or later";
    }
  }

  static Pixels pixels(const ConvPicture& p) {
    return {p.data, std::int64_t{p.batch} * p.height * p.width, p.channels};
  }

  std::mt19937 random_{11};
};

TEST_P(ChannelNormKernelsGpuTest, ThereAndBack) {
  constexpr float kEpsilon = 1e-6F;
  for (const int channels : {8, 16, 40, 64, 128, 200, 256}) {
    for (const int count : {1, 3, 31, 500, 20'000}) {
      SCOPED_TRACE(testing::Message() << count << " pixels of " << channels << " channels");
      Picture x(GetParam(), 1, 1, count, channels), dy(GetParam(), 1, 1, count, channels),
          y(GetParam(), 1, 1, count, channels), dx(GetParam(), 1, 1, count, channels);
      x.fill(random_);
      dy.fill(random_);
      std::vector<float> weight(static_cast<std::size_t>(channels)), bias(weight.size());
      std::normal_distribution<float> normal;
      for (std::vector<float>* values : {&weight, &bias})
        for (float& v : *values) v = normal(random_);
      GuardedBytes card_weight(weight.size() * sizeof(float)), card_bias(bias.size() * sizeof(float));
      card_weight.write(weight.data());
      card_bias.write(bias.data());
      ChannelNorm norm{.element = GetParam(),
                       .x = pixels(x.card),
                       .y = pixels(y.card),
                       .weight = {card_weight.data(), ElementType::f32, channels},
                       .bias = {card_bias.data(), ElementType::f32, channels},
                       .epsilon = kEpsilon};
      cuda::channel_norm(norm, nullptr);
      norm.x = pixels(x.host);
      norm.y = pixels(y.host);
      norm.weight.data = weight.data();
      norm.bias.data = bias.data();
      cpu::channel_norm(norm);
      EXPECT_LE(relative(y.read(), y.values), half_unit(GetParam()));

      GuardedBytes of_weight(weight.size() * sizeof(float)), of_bias(weight.size() * sizeof(float)),
          workspace(cuda::channel_norm_bytes(channels));
      ChannelNormBackward back{.element = GetParam(),
                               .x = pixels(x.card),
                               .dy = pixels(dy.card),
                               .dx = pixels(dx.card),
                               .weight = {card_weight.data(), ElementType::f32, channels},
                               .epsilon = kEpsilon,
                               .of_weight = reinterpret_cast<float*>(of_weight.data()),
                               .of_bias = reinterpret_cast<float*>(of_bias.data())};
      cuda::channel_norm_backward(back, workspace.data(), nullptr);
      std::vector<float> weights(weight.size()), biases(weight.size());
      back.x = pixels(x.host);
      back.dy = pixels(dy.host);
      back.dx = pixels(dx.host);
      back.weight.data = weight.data();
      back.of_weight = weights.data();
      back.of_bias = biases.data();
      cpu::channel_norm_backward(back);
      EXPECT_LE(relative(dx.read(), dx.values), half_unit(GetParam()));
      EXPECT_LE(relative(of_weight.read<float>(), weights), 1e-4);
      EXPECT_LE(relative(of_bias.read<float>(), biases), 1e-5);
      workspace.read<float>();
      x.read();
      dy.read();
    }
  }
}

TEST_P(ChannelNormKernelsGpuTest, OfNoPixelGradientsAreZeros) {
  constexpr int kChannels = 64;
  GuardedBytes of_weight(kChannels * sizeof(float)), workspace(cuda::channel_norm_bytes(kChannels));
  const Pixels none{.channels = kChannels};
  EXPECT_NO_THROW(cuda::channel_norm({.element = GetParam(), .x = none, .y = none}, nullptr));
  cuda::channel_norm_backward(
      {.element = GetParam(), .x = none, .dy = none, .of_weight = reinterpret_cast<float*>(of_weight.data())},
      workspace.data(), nullptr);
  EXPECT_EQ(of_weight.read<float>(), std::vector<float>(kChannels));
}

INSTANTIATE_TEST_SUITE_P(Types, ChannelNormKernelsGpuTest, testing::Values(ElementType::f16, ElementType::bf16),
                         [](const auto& info) { return info.param == ElementType::f16 ? "fp16" : "bf16"; });

}  // namespace
}  // namespace reelgrad
