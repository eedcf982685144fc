// Structural similarity, differentiable in the prediction: Wang, Bovik, Sheikh, Simoncelli, "Image quality assessment:
// from error visibility to structural similarity", 2004, and Wang, Simoncelli, Bovik, "Multiscale structural similarity
// for image quality assessment", 2003. Gaussian window of 11 with sigma 1.5, where it fits as a whole; K1 = 0.01,
// K2 = 0.03, samples from 0 to 1; each channel by itself.
#pragma once
#include <torch/types.h>

#include "reelgrad/train/line_filter.h"

namespace reelgrad {

class SsimLoss {
 public:
  SsimLoss();

  // 1 - SSIM and 1 - MS-SSIM, means over pictures and channels: scalars. [N, C, H, W] of one type and size, float32 or
  // float64; the target is a constant. Throws usage when a side is shorter than kSmallestForSsim or kSmallestForMsSsim,
  // naming both.
  torch::Tensor ssim(const torch::Tensor& prediction, const torch::Tensor& target) const;

  // Each scale has half the last one's size (means of 2x2, an odd last row or column is left out) and the paper's
  // exponent. A factor of a channel below 1e-4 counts as 1e-4: a power of it has no gradient at 0 and none of use
  // below, and the other scales' gradients, which it is a factor of, stay.
  torch::Tensor ms_ssim(const torch::Tensor& prediction, const torch::Tensor& target) const;

 private:
  ConstantVector window_;
};

}  // namespace reelgrad
