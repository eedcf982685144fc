#include "reelgrad/train/focal_frequency_loss.h"

#include <ATen/ops/fft_fft2.h>
#include <ATen/ops/view_as_real.h>
#include <torch/torch.h>

#include <limits>

namespace reelgrad {

torch::Tensor focal_frequency_loss(const torch::Tensor& d, double alpha) {
  const torch::Tensor spectrum = at::view_as_real(at::fft_fft2(d, std::nullopt, {-2, -1}, "ortho"));
  const torch::Tensor squares = spectrum.square().sum(-1);  // [N, C, H, W]
  torch::Tensor weight;
  {
    const torch::NoGradGuard no_grad;
    const torch::Tensor focus = squares.pow(alpha / 2);
    // Planes without any difference would be 0 / 0.
    const double smallest = squares.scalar_type() == torch::kFloat64 ? std::numeric_limits<double>::min()
                                                                     : std::numeric_limits<float>::min();
    weight = focus / focus.amax({-2, -1}, /*keepdim=*/true).clamp_min(smallest);
  }
  return (weight * squares).mean();
}

}  // namespace reelgrad
