#pragma once
#include <torch/types.h>

namespace reelgrad {

// The mean over the two-dimensional spectrum of d = prediction - target (torch.fft.fft2, norm "ortho") of the squared
// distance times its weight: the distance to the power of `alpha` over the largest of its plane, which gets no
// gradient. "Focal Frequency Loss for Image Reconstruction and Synthesis" (Jiang et al., 2021), one patch a picture.
// d: [N, C, H, W], float32 or float64. Scalar.
torch::Tensor focal_frequency_loss(const torch::Tensor& d, double alpha);

}  // namespace reelgrad
