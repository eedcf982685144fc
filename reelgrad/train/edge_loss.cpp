#include "reelgrad/train/edge_loss.h"

namespace reelgrad {

EdgeLoss::EdgeLoss(const std::string& edge_operator)
    : is_sobel_(edge_operator == "sobel"), smooth_({0.25, 0.5, 0.25}), slope_({-0.5, 0, 0.5}), curvature_({1, -2, 1}) {}

torch::Tensor EdgeLoss::operator()(const torch::Tensor& d) const {
  return is_sobel_ ? sobel(d) : laplacian(d);
}

torch::Tensor EdgeLoss::sobel(const torch::Tensor& d) const {
  const torch::Tensor smooth = smooth_.like(d), slope = slope_.like(d);
  const auto along = [&](std::int64_t dim, std::int64_t across) {
    return filter_lines(filter_lines(d, smooth, across), slope, dim).abs().mean();
  };
  return (along(3, 2) + along(2, 3)) / 2;
}

torch::Tensor EdgeLoss::laplacian(const torch::Tensor& d) const {
  const torch::Tensor curvature = curvature_.like(d);
  const auto along = [&](std::int64_t dim, std::int64_t across) {
    return filter_lines(d.narrow(across, 1, d.size(across) - 2), curvature, dim);
  };
  return (along(3, 2) + along(2, 3)).abs().mean();
}

}  // namespace reelgrad
