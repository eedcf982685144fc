// For tests.
#pragma once
#include <torch/types.h>

namespace reelgrad {

// Of whole tensors, in the reference's type and place.
inline double relative_error(const torch::Tensor& ours, const torch::Tensor& reference) {
  return ((ours.to(reference.options()) - reference).norm() / reference.norm()).item<double>();
}

}  // namespace reelgrad
