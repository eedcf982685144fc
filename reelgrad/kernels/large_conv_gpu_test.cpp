// cuda/'s large convolutions against cpu/'s: outputs start as NaN, and what lies around them must stay as it was.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "reelgrad/kernels/large_conv.h"
#include "reelgrad/kernels/test_card_picture.h"

namespace reelgrad {
namespace {

struct PictureSize {
  int batch, height, width, channels;
};

// The last takes the larger blocks, for it fills a card.
constexpr PictureSize kConvolved[] = {{1, 1, 1, 64},  {2, 7, 61, 16},  {3, 33, 17, 24}, {1, 67, 63, 64},
                                      {65, 2, 3, 32}, {1, 3, 259, 64}, {330, 1, 70, 16}};

class LargeConvKernelsGpuTest : public testing::TestWithParam<ElementType> {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0 || !cuda::warp::has_conv(0)) {
      cudaGetLastError();
      GTEST_SKIP() << "no card of compute capability 8.0 or later";
    }
    std::normal_distribution<float> normal;
    for (float& v : weight_) v = widened(element(), narrowed(element(), normal(random_) / 68));
    for (float& v : bias_) v = 0.3F * normal(random_);
    card_weight_ = std::make_unique<GuardedBytes>(weight_.size() * sizeof(float));
    card_weight_->write(weight_.data());
    card_bias_ = std::make_unique<GuardedBytes>(bias_.size() * sizeof(float));
    card_bias_->write(bias_.data());
  }

  static ElementType element() { return GetParam(); }

  static LargeWeights weights(const void* weight, const void* bias) {
    return {.data = weight,
            .out_step = kLargeChannels * kLargeTaps,
            .in_step = kLargeTaps,
            .tap_step = 1,
            .bias = {bias, ElementType::f32, kLargeChannels}};
  }
  LargeWeights on_host() const { return weights(weight_.data(), bias_.data()); }
  LargeWeights on_card() const { return weights(card_weight_->data(), card_bias_->data()); }

  // The first channels as they are computed, the others as they are.
  static void expect_convolved(const Picture& y) {
    const std::vector<float> found = y.read();
    std::vector<float> ours, reference;
    const auto all = static_cast<std::size_t>(y.card.channels);
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (i % all >= kLargeChannels) {
        ASSERT_EQ(found[i], y.values[i]) << "channel " << i % all << " of pixel " << i / all;
        continue;
      }
      ours.push_back(found[i]);
      reference.push_back(y.values[i]);
    }
    EXPECT_LE(relative(ours, reference), half_unit(element()));
  }

  std::mt19937 random_{17};
  std::vector<float> weight_ = std::vector<float>(kLargeChannels * kLargeChannels * kLargeTaps),
                     bias_ = std::vector<float>(kLargeChannels);
  std::unique_ptr<GuardedBytes> card_weight_, card_bias_;
};

TEST_P(LargeConvKernelsGpuTest, ThereAndBack) {
  for (const PictureSize& size : kConvolved) {
    SCOPED_TRACE(testing::Message() << size.batch << " × " << size.height << " × " << size.width << ", "
                                    << size.channels << " channels");
    const auto picture = [&] {
      return std::make_unique<Picture>(element(), size.batch, size.height, size.width, size.channels);
    };
    const auto x = picture(), dy = picture(), y = picture(), dx = picture();
    x->fill(random_);
    dy->fill(random_);
    GuardedBytes there(kLargePackedBytes), back(kLargePackedBytes);
    const LargePacking packings[] = {{on_card(), there.data()}, {backward_weights(on_card()), back.data()}};
    cuda::pack_large_weights(element(), packings, nullptr);
    cuda::large_conv({element(), x->card, there.data(), y->card}, nullptr);
    cpu::large_conv(on_host(), x->host, y->host);
    expect_convolved(*y);
    cuda::large_conv({element(), dy->card, back.data(), dx->card}, nullptr);
    cpu::large_conv(backward_weights(on_host()), dy->host, dx->host);
    expect_convolved(*dx);

    GuardedBytes gradient(weight_.size() * sizeof(float)), of_bias(bias_.size() * sizeof(float)),
        workspace(cuda::large_gradient_bytes());
    LargeGradients job{.x = x->card,
                       .dy = dy->card,
                       .weight = reinterpret_cast<float*>(gradient.data()),
                       .out_step = kLargeChannels * kLargeTaps,
                       .in_step = kLargeTaps,
                       .tap_step = 1,
                       .bias = reinterpret_cast<float*>(of_bias.data())};
    cuda::large_gradients(element(), job, workspace.data(), nullptr);
    std::vector<float> reference(weight_.size()), bias_reference(bias_.size());
    job.x = x->host;
    job.dy = dy->host;
    job.weight = reference.data();
    job.bias = bias_reference.data();
    cpu::large_gradients(job);
    const std::vector<float> found = gradient.read<float>();
    EXPECT_LE(relative(found, reference), 1e-4);
    EXPECT_LE(relative(of_bias.read<float>(), bias_reference), 1e-5);
    job.x = x->card;
    job.dy = dy->card;
    job.weight = reinterpret_cast<float*>(gradient.data());
    job.bias = nullptr;
    cuda::large_gradients(element(), job, workspace.data(), nullptr);
    EXPECT_EQ(gradient.read<float>(), found);  // the same bits
    for (const GuardedBytes* bytes : {&there, &back, &workspace}) bytes->read<float>();
    x->read();
    dy->read();
  }
}

// Pixels further apart than their channels, as those of a part of another picture.
TEST_P(LargeConvKernelsGpuTest, PartOfAPicture) {
  constexpr int kHeight = 20, kWidth = 37, kAll = 64, kPart = 24, kFirst = 16;
  Picture whole(element(), 1, kHeight, kWidth, kAll), y(element(), 1, kHeight, kWidth, kPart);
  whole.fill(random_);
  const auto part = [](ConvPicture p, std::size_t element_bytes) {
    p.data = static_cast<std::byte*>(p.data) + kFirst * element_bytes;
    p.channels = kPart;
    return p;
  };
  GuardedBytes packed(kLargePackedBytes);
  const LargePacking packing{on_card(), packed.data()};
  cuda::pack_large_weights(element(), {&packing, 1}, nullptr);
  cuda::large_conv({element(), part(whole.card, 2), packed.data(), y.card}, nullptr);
  cpu::large_conv(on_host(), part(whole.host, sizeof(float)), y.host);
  expect_convolved(y);
}

TEST_P(LargeConvKernelsGpuTest, BatchOfNothing) {
  const ConvPicture none = dense(nullptr, 0, 20, 30, 64);
  GuardedBytes gradient(weight_.size() * sizeof(float)), of_bias(bias_.size() * sizeof(float)),
      workspace(cuda::large_gradient_bytes());
  EXPECT_NO_THROW(cuda::large_conv({element(), none, card_weight_->data(), none}, nullptr));
  cuda::large_gradients(element(),
                        {.x = none,
                         .dy = none,
                         .weight = reinterpret_cast<float*>(gradient.data()),
                         .out_step = kLargeChannels * kLargeTaps,
                         .in_step = kLargeTaps,
                         .tap_step = 1,
                         .bias = reinterpret_cast<float*>(of_bias.data())},
                        workspace.data(), nullptr);
  EXPECT_EQ(gradient.read<float>(), std::vector<float>(weight_.size()));
  EXPECT_EQ(of_bias.read<float>(), std::vector<float>(bias_.size()));
}

INSTANTIATE_TEST_SUITE_P(Types, LargeConvKernelsGpuTest, testing::Values(ElementType::f16, ElementType::bf16),
                         [](const auto& info) { return info.param == ElementType::f16 ? "fp16" : "bf16"; });

}  // namespace
}  // namespace reelgrad
