// Losses that look at each pixel by itself.
#pragma once
#include <torch/types.h>

#include "reelgrad/config/config.h"
#include "reelgrad/kernels/color.h"

namespace reelgrad {

// What luma and chroma weigh in the pixel losses. With both 1 these see the network's own colours; else Y'CbCr of
// BT.709 (an rgb network's output is converted), of whose three planes each has its weight in the mean.
class PlaneWeights {
 public:
  // Throws usage for weights other than 1 of a gray network.
  PlaneWeights(const LossConfig& config, NetworkColor color);

  // prediction - target, [N, C, H, W], in the colours that the pixel losses see.
  torch::Tensor seen(const torch::Tensor& difference) const;

  // Scalar: the mean over all of `map`, [N, C, H, W].
  torch::Tensor mean(const torch::Tensor& map) const;

 private:
  bool plain_;
  bool convert_;  // from R'G'B'
  double luma_, chroma_;
};

// [N, 2, H, W]: the difference's Cb and Cr by BT.709; not of gray.
torch::Tensor chroma_of_difference(const torch::Tensor& difference, NetworkColor color);

// Of each d = prediction - target, [N, C, H, W]: sqrt(d^2 + eps^2): Charbonnier et al., "Two deterministic
// half-quadratic regularization algorithms for computed imaging", 1994.
torch::Tensor charbonnier(const torch::Tensor& d, double eps);
// d^2 / 2 up to |d| = delta, from there the line delta (|d| - delta / 2): Huber, "Robust estimation of a location
// parameter", 1964; torch.nn.HuberLoss.
torch::Tensor huber(const torch::Tensor& d, double delta);

}  // namespace reelgrad
