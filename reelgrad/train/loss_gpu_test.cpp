// Losses on a card: the CPU's values, the same bits each time, in a CUDA graph.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <gmock/gmock.h>

#include <array>

#include "reelgrad/base/dynamic_library.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/nn/weights.h"
#include "reelgrad/train/amp.h"
#include "reelgrad/train/loss_testing.h"
#include "reelgrad/train/test_support.h"

namespace reelgrad {
namespace {

using test::evaluate;
using test::Evaluated;
using test::expect_fft_in_float32;
using test::feature_cases;
using test::loss_cases;
using test::LossCase;
using test::PicturePair;
using test::pictures_of_cases;
using test::relative_error;
using test::uniform;

// Noise in the shapes of torchvision's convolutions: {number, out, in, kernel}.
NamedTensors random_features(const std::vector<std::array<std::int64_t, 4>>& convs) {
  NamedTensors tensors;
  for (const auto& [number, out, in, kernel] : convs) {
    const double gain = std::sqrt(2.0 / static_cast<double>(in * kernel * kernel));
    const auto noise = [&](torch::IntArrayRef sizes) {
      return (uniform(sizes, static_cast<std::uint64_t>(number)) * 2 - 1).to(torch::kFloat32);
    };
    tensors.emplace_back("features." + std::to_string(number) + ".weight",
                         noise({out, in, kernel, kernel}) * (gain * std::sqrt(3.0)));
    tensors.emplace_back("features." + std::to_string(number) + ".bias", noise({out}) * 0.1);
  }
  return tensors;
}

NamedTensors random_vgg(int convs_of_late_blocks) {
  std::vector<std::array<std::int64_t, 4>> convs;
  std::int64_t number = 0, in = 3;
  for (int block = 0; block < 5; ++block, ++number) {
    const std::int64_t out = std::min(64 << block, 512);
    for (int i = 0; i < (block < 2 ? 2 : convs_of_late_blocks); ++i, number += 2, in = out) {
      convs.push_back({number, out, in, 3});
    }
  }
  return random_features(convs);
}

// A machine with a card may have neither the packages nor torchvision.
void write_random_networks(const std::filesystem::path& folder) {
  write_safetensors(folder / "vgg19.pth", random_vgg(4));
  write_safetensors(folder / "vgg16.safetensors", random_vgg(3));
  write_safetensors(
      folder / "alexnet.pth",
      random_features({{0, 64, 3, 11}, {3, 192, 64, 5}, {6, 384, 192, 3}, {8, 256, 384, 3}, {10, 256, 256, 3}}));
  const auto write_lpips = [&](const char* name, const std::array<std::int64_t, 5>& channels) {
    NamedTensors tensors;
    for (std::size_t i = 0; i < channels.size(); ++i) {
      tensors.emplace_back("lin" + std::to_string(i) + ".model.1.weight", uniform({1, channels[i], 1, 1}, i));
    }
    write_safetensors(folder / name, tensors);
  };
  write_lpips("lpips-vgg", {64, 128, 256, 512, 512});
  write_lpips("lpips-alex", {64, 192, 384, 256, 256});
  write_safetensors(folder / "dists", {{"alpha", uniform({1, 1475, 1, 1}, 1)}, {"beta", uniform({1, 1475, 1, 1}, 2)}});
}

class LossGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_card()) GTEST_SKIP() << "no CUDA card";
    set_environment_default("CUBLAS_WORKSPACE_CONFIG", ":4096:8");  // matrix products in a fixed order
  }

  std::vector<LossCase> cases_with_features() const {
    write_random_networks(folder_.path());
    std::vector<LossCase> all = loss_cases();
    for (LossCase made : feature_cases(folder_.path())) {
      made.config.lpips.weights = folder_ / ("lpips-" + made.config.lpips.net);
      made.config.dists.weights = folder_ / "dists";
      all.push_back(made);
    }
    return all;
  }

  const test::TemporaryFolder folder_;
  const torch::Device card_{torch::kCUDA, 0};
};

TEST_F(LossGpuTest, SpectraAreFloat32UnderAutocast) {
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    expect_fft_in_float32(card_, precision);
  }
}

TEST_F(LossGpuTest, EveryLossIsTheCpus) {
  for (const LossCase& made : cases_with_features()) {
    SCOPED_TRACE(made.name);
    const Loss loss(made.config, made.color);
    const PicturePair pictures = pictures_of_cases().at(made.pictures);
    const Evaluated expected = evaluate(loss, pictures);
    for (const torch::ScalarType type : {torch::kFloat64, torch::kFloat32}) {
      if (loss.has_frozen_networks() && type == torch::kFloat32) continue;  // in TF32
      // In float32 differences of blurred squares lose digits that gradients of SSIM are made of.
      const double tolerance = type == torch::kFloat64 ? 1e-10 : 1e-3;
      const Evaluated ours = evaluate(loss, pictures.to(card_, type));
      EXPECT_LE(relative_error(ours.terms.cpu().to(torch::kFloat64), expected.terms), tolerance);
      EXPECT_LE(relative_error(ours.gradient.cpu().to(torch::kFloat64), expected.gradient), tolerance);
    }
  }
}

TEST_F(LossGpuTest, EveryLossIsDeterministic) {
  apply_determinism(true);
  for (const LossCase& made : cases_with_features()) {
    SCOPED_TRACE(made.name);
    const Loss loss(made.config, made.color);
    const PicturePair pictures = pictures_of_cases().at(made.pictures).to(card_, torch::kFloat32);
    const Evaluated first = evaluate(loss, pictures), second = evaluate(loss, pictures);
    EXPECT_TRUE(torch::equal(first.terms, second.terms));
    EXPECT_TRUE(torch::equal(first.gradient, second.gradient));
  }
  apply_determinism(false);
}

TEST_F(LossGpuTest, EveryLossCanBeCaptured) {
  for (const LossCase& made : cases_with_features()) {
    SCOPED_TRACE(made.name);
    const Loss loss(made.config, made.color);
    const PicturePair pictures = pictures_of_cases().at(made.pictures).to(card_, torch::kFloat32);
    const torch::Tensor prediction = pictures.target.detach().clone().requires_grad_();
    const auto gradient_now = [&] {
      return torch::autograd::grad({loss(prediction, pictures.target).total}, {prediction})[0];
    };
    const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool();
    at::cuda::CUDAGraph graph;
    torch::Tensor gradient;
    {
      const c10::cuda::CUDAStreamGuard on_stream(stream);
      gradient_now();
      graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
      gradient = gradient_now();
      graph.capture_end();
      const torch::NoGradGuard no_grad;
      prediction.copy_(pictures.prediction);
      graph.replay();
    }
    stream.synchronize();
    EXPECT_LE(relative_error(gradient, evaluate(loss, pictures).gradient), loss.has_frozen_networks() ? 1e-4 : 1e-6);
  }
}

}  // namespace
}  // namespace reelgrad
