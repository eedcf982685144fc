#pragma once
#include <torch/types.h>

#include "reelgrad/train/line_filter.h"

namespace reelgrad {

// The mean of |M d|, d = prediction - target. M is the variance of r, the sum of |d| over the channels, in the 7x7
// pixels around (reflected at the border), times the fifth root of r's variance in the whole picture: where differences
// vary from pixel to pixel, as artifacts do. "Details or Artifacts: A Locally Discriminative Learning Approach to
// Realistic Image Super-Resolution" (Liang et al., 2022), without its comparison with the average's output, as traiNNer
// and neosr have it; the gradient goes through M too, as theirs.
class LdlLoss {
 public:
  LdlLoss();

  // [N, C, H, W], float32 or float64, at least 4 pixels a side. Scalar.
  torch::Tensor operator()(const torch::Tensor& d) const;

 private:
  torch::Tensor local_variance(const torch::Tensor& r) const;

  ConstantVector window_;
};

}  // namespace reelgrad
