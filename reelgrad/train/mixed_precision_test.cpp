// Convolutions, PReLU and pixel shuffle in every precision that is trained in.
#include <gtest/gtest.h>

#include "reelgrad/train/amp.h"
#include "reelgrad/train/loss.h"
#include "reelgrad/train/test_support.h"

namespace reelgrad {
namespace {

std::shared_ptr<Network> network_on(torch::Device device) {
  auto network = test::small_network(1);
  network->to(device);
  if (device.is_cuda()) to_channels_last(*network);
  return network;
}

void expect_close_to_float32(torch::Device device, Precision precision) {
  const auto network = network_on(device);
  const torch::NoGradGuard no_grad;
  const torch::Tensor input = torch::rand({2, 3, 12, 12}).to(device);
  const torch::Tensor full = network->forward(input);
  const AutocastGuard autocast(device, precision);
  EXPECT_LE((network->forward(input).to(torch::kFloat32) - full).abs().max().item<double>(), 1e-2);
}

void expect_training_works(torch::Device device, Precision precision) {
  const auto network = network_on(device);
  const Loss loss({.l1 = 1, .charbonnier = 0}, NetworkColor::rgb);
  const auto batch = test::smooth_batches(test::small_config(), device).next(0, 0, 8);
  std::vector<double> losses;
  for (int step = 0; step < 30; ++step) {
    torch::Tensor prediction;
    {
      const AutocastGuard autocast(device, precision);
      prediction = network->forward(batch.input);
    }
    const torch::Tensor total = loss(prediction, batch.target).total;
    losses.push_back(total.item<double>());
    network->zero_grad();
    total.backward();
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& parameter : network->parameters()) {
      ASSERT_EQ(parameter.grad().scalar_type(), torch::kFloat32);
      ASSERT_TRUE(parameter.grad().isfinite().all().item<bool>());
      parameter.sub_(parameter.grad(), 0.05);
    }
  }
  EXPECT_LT(losses.back(), 0.8 * losses.front());
}

// Channel c s^2 + i s + j is row i and column j of each s x s block: Shi et al., "Real-time single image and video
// super-resolution using an efficient sub-pixel convolutional neural network", 2016.
torch::Tensor shuffled_by_index(const torch::Tensor& input, std::int64_t scale) {
  return input.unflatten(1, {-1, scale, scale}).permute({0, 1, 4, 2, 5, 3}).flatten(4, 5).flatten(2, 3);
}

void expect_shuffle_is_a_permutation(torch::Device device, torch::ScalarType type) {
  const torch::Tensor wide = torch::rand({2, 36, 5, 14}).to(device, type);
  const torch::Tensor plain = wide.slice(3, 0, 14, 2).contiguous();
  for (const std::int64_t scale : {2, 3}) {
    const torch::Tensor expected = shuffled_by_index(plain, scale);
    for (const torch::Tensor& input :
         {plain, plain.contiguous(torch::MemoryFormat::ChannelsLast), wide.slice(3, 0, 14, 2)}) {
      EXPECT_TRUE(torch::equal(at::pixel_shuffle(input, scale), expected)) << input.strides();
      EXPECT_TRUE(torch::equal(at::pixel_unshuffle(at::pixel_shuffle(input, scale), scale), plain)) << input.strides();
    }
  }
}

TEST(MixedPrecision, CompactIsCloseToFloat32) {
  expect_close_to_float32(torch::kCPU, Precision::bf16);
}

TEST(MixedPrecision, CompactTrains) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) expect_training_works(torch::kCPU, precision);
}

TEST(MixedPrecision, PixelShuffleIsAPermutationWhateverTheLayout) {
  for (const torch::ScalarType type : {torch::kFloat32, torch::kBFloat16}) {
    expect_shuffle_is_a_permutation(torch::kCPU, type);
  }
}

TEST(MixedPrecision, PixelShuffleOrderIsThatOfTheLiterature) {
  const torch::Tensor input = torch::arange(16).reshape({1, 4, 2, 2});
  const torch::Tensor expected =
      torch::tensor({0, 4, 1, 5, 8, 12, 9, 13, 2, 6, 3, 7, 10, 14, 11, 15}, torch::kInt64).reshape({1, 1, 4, 4});
  EXPECT_TRUE(torch::equal(at::pixel_shuffle(input, 2), expected));
  EXPECT_TRUE(torch::equal(at::pixel_shuffle(input.contiguous(torch::MemoryFormat::ChannelsLast), 2), expected));
}

TEST(MixedPrecisionGpu, CompactIsCloseToFloat32AndTrains) {
  if (!test::has_card()) GTEST_SKIP() << "no CUDA card";
  const torch::Device card(torch::kCUDA, 0);
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    SCOPED_TRACE(to_string(precision));
    expect_close_to_float32(card, precision);
    expect_training_works(card, precision);
  }
}

TEST(MixedPrecisionGpu, PixelShuffleIsAPermutationWhateverTheLayout) {
  if (!test::has_card()) GTEST_SKIP() << "no CUDA card";
  for (const torch::ScalarType type : {torch::kFloat32, torch::kBFloat16, torch::kFloat16}) {
    expect_shuffle_is_a_permutation({torch::kCUDA, 0}, type);
  }
}

}  // namespace
}  // namespace reelgrad
