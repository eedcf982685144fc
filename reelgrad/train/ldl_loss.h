#pragma once
#include <torch/types.h>

#include "reelgrad/train/line_filter.h"

namespace reelgrad {

// The mean of |M d|, d = prediction - target. M is the variance of r, the sum of |d| over the channels, in the 7x7
// pixels around (reflected at the border), times the fifth root of r's variance in the whole picture: where differences
// vary from pixel to pixel, as artifacts do. "Details or Artifacts: A Locally Discriminative Learning Approach to
// Realistic Image Super-Resolution" (Liang et al., 2022); the gradient goes through M too, as in BasicSR.
class LdlLoss {
 public:
  LdlLoss();

  // [N, C, H, W], float32 or float64, at least 4 pixels a side. Scalar. `of_average`: the same difference of the
  // averaged network's output, which gets no gradient: where its r is larger, M is 0. Undefined: M is as it is.
  torch::Tensor operator()(const torch::Tensor& d, const torch::Tensor& of_average = {}) const;

 private:
  torch::Tensor local_variance(const torch::Tensor& r) const;

  ConstantVector window_;
};

}  // namespace reelgrad
