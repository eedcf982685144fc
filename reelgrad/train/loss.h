#pragma once
#include <torch/types.h>

#include "reelgrad/config/config.h"

namespace reelgrad {

// Scalar, differentiable: the mean over all elements of |d| (l1) or sqrt(d^2 + eps^2) (charbonnier; Charbonnier et al.,
// "Two deterministic half-quadratic regularization algorithms for computed imaging", 1994), d = prediction - target.
// Both [N, C, H, W]; half types are computed in float32.
torch::Tensor compute_loss(const LossConfig& config, const torch::Tensor& prediction, const torch::Tensor& target);

}  // namespace reelgrad
