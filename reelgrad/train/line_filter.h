// Filters along one axis of pictures, where they fit as a whole: what SSIM and the edge loss are made of. cuDNN's
// convolutions would not do: they may run in TF32, whose rounding is larger than the variance of a smooth picture.
#pragma once
#include <torch/types.h>

#include <vector>

namespace reelgrad {

// A constant vector, made once for each device and type that it is asked for; then no call waits for the card, and a
// CUDA graph can hold it. For one thread at a time.
class ConstantVector {
 public:
  explicit ConstantVector(std::vector<double> values) : values_(std::move(values)) {}

  // On the device of `tensor` and of its type.
  torch::Tensor like(const torch::Tensor& tensor) const;

 private:
  std::vector<double> values_;
  mutable std::vector<torch::Tensor> made_;
};

// out[i] = sum over k of taps[k] * pictures[i + k] along `dim` (2 or 3) of [N, C, H, W], which gets shorter by
// taps - 1. `taps`: [K], on the device of the pictures and of their type. Differentiable in the pictures; keeps none of
// them for the backward pass. Throws c10::Error when the pictures are smaller than the filter.
torch::Tensor filter_lines(const torch::Tensor& pictures, const torch::Tensor& taps, std::int64_t dim);

// Its transpose, which is its gradient: out[i + k] += taps[k] * pictures[i]; gets longer by taps - 1. Not recorded by
// autograd.
torch::Tensor filter_lines_transposed(const torch::Tensor& pictures, const torch::Tensor& taps, std::int64_t dim);

}  // namespace reelgrad
