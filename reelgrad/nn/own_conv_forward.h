// The way forward of a row.
#pragma once
#include <utility>

#include "reelgrad/nn/own_conv_row.h"

namespace reelgrad::own {

class Forward {
 public:
  // Refers to both.
  Forward(const Row& row, const Tensors& parameters) : row_(row), parameters_(parameters) {}

  // `added`: at the end, undefined where nothing is.
  torch::Tensor run(const torch::Tensor& input, const torch::Tensor& added);

  // Of a row with gradients, after run().
  Kept take_kept() { return std::move(kept_); }

 private:
  bool shuffled(std::size_t i) const;
  void pack(const torch::Tensor& like);
  torch::Tensor run_layer(std::size_t i, const torch::Tensor& x, const torch::Tensor& added);
  torch::Tensor run_shuffled(std::size_t i, const torch::Tensor& x, const torch::Tensor& picture) const;
  void keep(torch::Tensor result, torch::Tensor argument, std::size_t i);

  const Row& row_;
  const Tensors& parameters_;
  Tensors packed_;
  Kept kept_;
};

}  // namespace reelgrad::own
