#pragma once
#include <torch/types.h>

#include <string>

#include "reelgrad/train/line_filter.h"

namespace reelgrad {

// Mean absolute difference of edges, where the operator's 3x3 pixels fit as a whole. sobel: both directions of Sobel's
// gradient over 8, so that a ramp of slope 1 counts 1 (Sobel and Feldman, "A 3x3 isotropic gradient operator", 1968);
// laplacian: the sum of the four neighbours minus four times the middle.
class EdgeLoss {
 public:
  explicit EdgeLoss(const std::string& edge_operator);  // as loss.edge_operator

  // `d`: prediction - target, [N, C, H, W], float32 or float64, at least 3x3: the operators are linear. Scalar.
  torch::Tensor operator()(const torch::Tensor& d) const;

 private:
  torch::Tensor sobel(const torch::Tensor& d) const;
  torch::Tensor laplacian(const torch::Tensor& d) const;

  bool is_sobel_;
  ConstantVector smooth_, slope_, curvature_;
};

}  // namespace reelgrad
