#include "reelgrad/restore/metrics.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "reelgrad/base/process.h"
#include "reelgrad/base/testing/temporary_folder.h"

namespace reelgrad {
namespace {

TEST(Metrics, PsnrByHand) {
  const torch::Tensor a = torch::full({3, 4, 5}, 0.5F);
  EXPECT_NEAR(psnr(a, a + 0.1F), 20.0, 1e-5);   // MSE 0.01
  EXPECT_NEAR(psnr(a, a + 0.01F), 40.0, 1e-4);  // MSE 0.0001
  torch::Tensor b = a.clone();
  b[0][0][0] += 0.5F;  // MSE 0.25 / 60
  EXPECT_NEAR(psnr(a, b), 23.802112, 1e-5);
  EXPECT_EQ(psnr(a, a), 100);
  EXPECT_EQ(psnr(a, a + 1e-7F), 100);
}

TEST(Metrics, LumaIsBt601Limited) {
  const torch::Tensor white = luma(torch::ones({3, 1, 1})), black = luma(torch::zeros({3, 1, 1}));
  EXPECT_NEAR(white.item<float>() * 255, 235, 1e-4);
  EXPECT_NEAR(black.item<float>() * 255, 16, 1e-4);
  const torch::Tensor green = luma(torch::tensor({0.F, 1.F, 0.F}).view({3, 1, 1}));
  EXPECT_NEAR(green.item<float>() * 255, 16 + 128.553, 1e-3);
}

TEST(Metrics, SsimOfItselfIsOneAndSmallPicturesAreRefused) {
  torch::manual_seed(1);
  const torch::Tensor picture = torch::rand({3, 11, 40});
  EXPECT_NEAR(ssim(picture, picture), 1, 1e-12);
  EXPECT_THROW(ssim(torch::rand({1, 10, 40}), torch::rand({1, 10, 40})), std::exception);
}

// Straight from the paper's formulas, float64, with a two-dimensional window.
constexpr const char* kMetricsReference = R"(
import sys, numpy as np
from numpy.lib.stride_tricks import sliding_window_view
c, h, w = map(int, sys.argv[2:5])
a, b = np.fromfile(sys.argv[1], np.float32).astype(np.float64).reshape(2, c, h, w)
x = np.arange(11) - 5
g = np.exp(-(x[:, None] ** 2 + x[None, :] ** 2) / (2 * 1.5 ** 2))
g /= g.sum()
total = []
for p, q in zip(a, b):
    wp, wq = sliding_window_view(p, (11, 11)), sliding_window_view(q, (11, 11))
    mp, mq = (wp * g).sum((2, 3)), (wq * g).sum((2, 3))
    dp, dq = wp - mp[..., None, None], wq - mq[..., None, None]
    vp, vq, cov = (dp * dp * g).sum((2, 3)), (dq * dq * g).sum((2, 3)), (dp * dq * g).sum((2, 3))
    c1, c2 = 0.01 ** 2, 0.03 ** 2
    total.append(((2 * mp * mq + c1) * (2 * cov + c2) / ((mp ** 2 + mq ** 2 + c1) * (vp + vq + c2))).mean())
print(repr(float(np.mean(total))))
)";

double reference_ssim(const torch::Tensor& a, const torch::Tensor& b) {
  const test::TemporaryFolder folder;
  const std::filesystem::path file = folder / "pictures.f32";
  const torch::Tensor both = torch::stack({a, b}).contiguous();
  std::ofstream(file, std::ios::binary)
      .write(static_cast<const char*>(both.const_data_ptr()), static_cast<std::streamsize>(both.nbytes()));
  const ProcessResult result =
      run_process({REELGRAD_TEST_PYTHON, "-c", kMetricsReference, file.string(), std::to_string(a.size(0)),
                   std::to_string(a.size(1)), std::to_string(a.size(2))},
                  std::chrono::seconds(60));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return std::strtod(result.out.c_str(), nullptr);
}

TEST(Metrics, SsimEqualsAnIndependentImplementation) {
  torch::manual_seed(2);
  for (const auto [channels, height, width] : {std::array{3, 90, 71}, std::array{1, 11, 11}, std::array{1, 36, 50}}) {
    const torch::Tensor a = torch::rand({channels, height, width});
    const torch::Tensor b = (a + 0.2 * torch::rand_like(a)).clamp(0, 1);
    EXPECT_NEAR(ssim(a, b), reference_ssim(a, b), 1e-9) << channels << "x" << height << "x" << width;
  }
  // Flat, bright pictures are where a careless variance goes wrong.
  const torch::Tensor flat = torch::full({1, 40, 40}, 0.9F);
  const torch::Tensor noisy = flat + 0.002F * torch::rand_like(flat);
  EXPECT_NEAR(ssim(flat, noisy), reference_ssim(flat, noisy), 1e-9);
}

TEST(Metrics, QualityClampsAndTreatsGrayAsY) {
  torch::manual_seed(3);
  const torch::Tensor target = torch::rand({1, 20, 20});
  const QualityScores gray = quality(target + 2, target);
  EXPECT_EQ(gray.psnr_rgb, gray.psnr_y);
  EXPECT_NEAR(gray.psnr_rgb, psnr(torch::ones_like(target), target), 1e-9);
  const torch::Tensor rgb = torch::rand({3, 20, 20}), other = torch::rand({3, 20, 20});
  EXPECT_NEAR(quality(rgb, other).psnr_y, psnr(luma(rgb), luma(other)), 1e-9);
  EXPECT_NEAR(quality(rgb, other).ssim_y, ssim(luma(rgb), luma(other)), 1e-9);
}

TEST(MetricsGpuTest, CardEqualsCpu) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA card";
  torch::manual_seed(4);
  const torch::Tensor a = torch::rand({3, 120, 131}), b = (a + 0.1 * torch::rand_like(a)).clamp(0, 1);
  const QualityScores cpu = quality(a, b), card = quality(a.cuda(), b.cuda());
  EXPECT_NEAR(cpu.psnr_rgb, card.psnr_rgb, 1e-6);
  EXPECT_NEAR(cpu.psnr_y, card.psnr_y, 1e-6);
  EXPECT_NEAR(cpu.ssim_rgb, card.ssim_rgb, 1e-6);
  EXPECT_NEAR(cpu.ssim_y, card.ssim_y, 1e-6);
}

}  // namespace
}  // namespace reelgrad
