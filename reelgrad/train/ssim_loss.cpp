#include "reelgrad/train/ssim_loss.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "reelgrad/base/error.h"
#include "reelgrad/config/config.h"

namespace reelgrad {
namespace {

constexpr int kSsimWindow = kSmallestForSsim;
constexpr int kMsSsimScales = 5;
static_assert(kSmallestForMsSsim == kSsimWindow << (kMsSsimScales - 1));
constexpr double kWindowSigma = 1.5;
constexpr double kLuminanceConstant = 0.01 * 0.01;
constexpr double kContrastConstant = 0.03 * 0.03;
constexpr std::array<double, kMsSsimScales> kExponents{0.0448, 0.2856, 0.3001, 0.2363, 0.1333};
constexpr double kLeastFactor = 1e-4;

std::vector<double> gaussian_taps() {
  std::vector<double> taps;
  double sum = 0;
  for (int i = 0; i < kSsimWindow; ++i) {
    const double x = i - kSsimWindow / 2;
    sum += taps.emplace_back(std::exp(-x * x / (2 * kWindowSigma * kWindowSigma)));
  }
  for (double& tap : taps) tap /= sum;
  return taps;
}

torch::Tensor blurred(const torch::Tensor& pictures, const torch::Tensor& window) {
  return filter_lines(filter_lines(pictures, window, 3), window, 2);
}

torch::Tensor blurred_transposed(const torch::Tensor& pictures, const torch::Tensor& window) {
  return filter_lines_transposed(filter_lines_transposed(pictures, window, 2), window, 3);
}

// Means over each channel of the map of contrast and structure, (2 cov + C2) / (var_a + var_b + C2), times luminance,
// (2 mean_a mean_b + C1) / (mean_a^2 + mean_b^2 + C1), when asked for: [N, C].
//
// Op by op autograd would keep some twenty maps; the derivatives by the three blurred maps that depend on `a` are all
// that the backward pass needs.
class SimilarityMeans : public torch::autograd::Function<SimilarityMeans> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& a,
                               const torch::Tensor& b, const torch::Tensor& window, bool with_luminance) {
    const torch::Tensor mean_a = blurred(a, window), mean_b = blurred(b, window);
    const torch::Tensor product = mean_a * mean_b;
    const torch::Tensor squares = mean_a.square() + mean_b.square();

    const torch::Tensor divisor = (blurred(a.square() + b.square(), window) - squares).add_(kContrastConstant);
    const torch::Tensor contrast = (2 * (blurred(a * b, window) - product)).add_(kContrastConstant).div_(divisor);
    torch::Tensor by_mean = 2 * (contrast * mean_a - mean_b) / divisor;  // by mean_a
    torch::Tensor by_square = -contrast / divisor;                       // by the blurred a^2
    torch::Tensor by_product = 2 / divisor;                              // by the blurred a b
    torch::Tensor map = contrast;
    if (with_luminance) {
      const torch::Tensor luminance_divisor = squares + kLuminanceConstant;
      const torch::Tensor luminance = (2 * product + kLuminanceConstant).div_(luminance_divisor);
      by_mean.mul_(luminance).add_(2 * contrast * (mean_b - luminance * mean_a) / luminance_divisor);
      by_square.mul_(luminance);
      by_product.mul_(luminance);
      map = luminance * contrast;
    }
    context->save_for_backward({a, b, window, by_mean, by_square, by_product});
    return map.mean({2, 3});
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const torch::Tensor &a = saved[0], &b = saved[1], &window = saved[2];
    const torch::Tensor gradient = blurred_transposed(saved[3], window)
                                       .addcmul_(a, blurred_transposed(saved[4], window), 2)
                                       .addcmul_(b, blurred_transposed(saved[5], window));
    const auto pixels = static_cast<double>(saved[3].size(2) * saved[3].size(3));
    return {gradient.mul_((gradients[0] / pixels).unsqueeze(-1).unsqueeze(-1)), {}, {}, {}};
  }
};

// Means of 2x2 pixels. Not avg_pool2d: this backward pass is the same on every run.
torch::Tensor halved(const torch::Tensor& pictures) {
  const std::int64_t height = pictures.size(2) / 2, width = pictures.size(3) / 2;
  return pictures.narrow(2, 0, 2 * height)
      .narrow(3, 0, 2 * width)
      .unflatten(3, {width, 2})
      .unflatten(2, {height, 2})
      .mean({3, 5});
}

void require_size(const torch::Tensor& pictures, std::int64_t smallest, const char* key) {
  if (std::min(pictures.size(2), pictures.size(3)) >= smallest) return;
  fail_usage(
      fmt::format("{}: the pictures are {}x{}, it needs {}x{} (data.crop_px times model.scale) or more: raise "
                  "data.crop_px, or set {} = 0",
                  key, pictures.size(3), pictures.size(2), smallest, smallest, key));
}

}  // namespace

SsimLoss::SsimLoss() : window_(gaussian_taps()) {}

torch::Tensor SsimLoss::ssim(const torch::Tensor& prediction, const torch::Tensor& target) const {
  require_size(prediction, kSsimWindow, "loss.ssim");
  return 1 - SimilarityMeans::apply(prediction, target, window_.like(prediction), true).mean();
}

torch::Tensor SsimLoss::ms_ssim(const torch::Tensor& prediction, const torch::Tensor& target) const {
  require_size(prediction, kSmallestForMsSsim, "loss.ms_ssim");
  const torch::Tensor window = window_.like(prediction);
  torch::Tensor a = prediction, b = target, product;
  for (int scale = 0; scale < kMsSsimScales; ++scale) {
    if (scale > 0) {
      a = halved(a);
      b = halved(b);
    }
    const torch::Tensor means = SimilarityMeans::apply(a, b, window, scale == kMsSsimScales - 1);  // [N, C]
    const torch::Tensor factor = means.clamp_min(kLeastFactor).pow(kExponents[static_cast<std::size_t>(scale)]);
    product = scale == 0 ? factor : product * factor;
  }
  return 1 - product.mean();
}

}  // namespace reelgrad
