#include "reelgrad/restore/metrics.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "reelgrad/base/error.h"

namespace reelgrad {
namespace {

constexpr int kWindow = 11;
constexpr double kSigma = 1.5;
constexpr double kC1 = 0.01 * 0.01;
constexpr double kC2 = 0.03 * 0.03;
constexpr double kMaxPsnr = 100;
// Rows of the SSIM map computed at once. CPU: five maps of a strip stay in the cache, a whole picture's do not. Card: a
// strip of a wide picture still takes little memory.
constexpr std::int64_t kStripRows = 24, kCardStripRows = 512;

std::array<double, kWindow> gaussian() {
  std::array<double, kWindow> taps;
  double sum = 0;
  for (int i = 0; i < kWindow; ++i) {
    const double x = i - kWindow / 2;
    sum += taps[i] = std::exp(-x * x / (2 * kSigma * kSigma));
  }
  for (double& tap : taps) tap /= sum;
  return taps;
}

// Weighted sum of shifted slices along `dim`, where the window fits. Not a convolution: those may run in TF32 on a card
// and have no fast float64 path on the CPU.
torch::Tensor filter(const torch::Tensor& maps, std::int64_t dim) {
  static const std::array<double, kWindow> taps = gaussian();
  const std::int64_t size = maps.size(dim) - kWindow + 1;
  torch::Tensor sum = maps.narrow(dim, 0, size) * taps[0];
  for (int i = 1; i < kWindow; ++i) sum.add_(maps.narrow(dim, i, size), taps[i]);
  return sum;
}

// Sum of the SSIM map of two float64 [H, W] pictures.
torch::Tensor ssim_sum(const torch::Tensor& a, const torch::Tensor& b) {
  const torch::Tensor maps = torch::stack({a, b, a * a, b * b, a * b});  // [5, H, W]
  const torch::Tensor means = filter(filter(maps, 1), 2);
  const torch::Tensor mean_a = means[0], mean_b = means[1];
  const torch::Tensor product = mean_a * mean_b;
  const torch::Tensor squares = mean_a * mean_a + mean_b * mean_b;
  const torch::Tensor luminance = (2 * product + kC1) / (squares + kC1);
  const torch::Tensor structure = (2 * (means[4] - product) + kC2) / (means[2] + means[3] - squares + kC2);
  return (luminance * structure).sum();
}

void check_pair(const torch::Tensor& a, const torch::Tensor& b) {
  TORCH_CHECK(a.dim() == 3 && a.sizes() == b.sizes(), "metrics need two [C, H, W] pictures of one size, got ",
              a.sizes(), " and ", b.sizes());
}

}  // namespace

double psnr(const torch::Tensor& a, const torch::Tensor& b) {
  check_pair(a, b);
  const double mse = (a.to(torch::kDouble) - b.to(torch::kDouble)).square_().mean().item<double>();
  return mse <= 0 ? kMaxPsnr : std::min(kMaxPsnr, -10 * std::log10(mse));
}

double ssim(const torch::Tensor& a, const torch::Tensor& b) {
  check_pair(a, b);
  const std::int64_t channels = a.size(0);
  const std::int64_t rows = a.size(1) - kWindow + 1, columns = a.size(2) - kWindow + 1;
  if (rows <= 0 || columns <= 0) {
    fail("SSIM of a " + std::to_string(a.size(2)) + "x" + std::to_string(a.size(1)) +
         " picture: it must be at least 11x11 pixels");
  }
  const std::int64_t strip_rows = std::min(rows, a.is_cuda() ? kCardStripRows : kStripRows);
  const std::int64_t strips = (rows + strip_rows - 1) / strip_rows;
  std::vector<double> sums(static_cast<std::size_t>(channels * strips));
  const auto measure_strip = [&](std::int64_t index) {
    const std::int64_t channel = index / strips, row = index % strips * strip_rows;
    const std::int64_t count = std::min(strip_rows, rows - row) + kWindow - 1;
    return ssim_sum(a[channel].narrow(0, row, count).to(torch::kDouble),
                    b[channel].narrow(0, row, count).to(torch::kDouble));
  };
  // Threads share the strips, not each small operation; added up in order, the sum does not depend on their number.
  const double positions = static_cast<double>(channels * rows * columns);
  if (a.is_cuda()) {  // the card works on while the next strip is launched: read once
    std::vector<torch::Tensor> on_card;
    for (std::int64_t i = 0; i < channels * strips; ++i) on_card.push_back(measure_strip(i));
    return torch::stack(on_card).sum().item<double>() / positions;
  }
  at::parallel_for(0, channels * strips, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) sums[i] = measure_strip(i).item<double>();
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0) / positions;
}

torch::Tensor luma(const torch::Tensor& rgb) {
  TORCH_CHECK(rgb.dim() == 3 && rgb.size(0) == 3, "luma needs a [3, H, W] picture, got ", rgb.sizes());
  return (rgb[0] * (65.481 / 255) + rgb[1] * (128.553 / 255) + rgb[2] * (24.966 / 255) + 16.0 / 255).unsqueeze(0);
}

QualityScores quality(const torch::Tensor& picture, const torch::Tensor& target) {
  torch::NoGradGuard no_grad;
  const torch::Tensor a = picture.clamp(0, 1), b = target.clamp(0, 1);
  QualityScores scores;
  scores.psnr_rgb = psnr(a, b);
  scores.ssim_rgb = ssim(a, b);
  if (a.size(0) == 1) {
    scores.psnr_y = scores.psnr_rgb;
    scores.ssim_y = scores.ssim_rgb;
    return scores;
  }
  const torch::Tensor luma_a = luma(a), luma_b = luma(b);
  scores.psnr_y = psnr(luma_a, luma_b);
  scores.ssim_y = ssim(luma_a, luma_b);
  return scores;
}

}  // namespace reelgrad
