// The way back through a row.
#pragma once
#include "reelgrad/nn/own_conv_row.h"

namespace reelgrad::own {

class Backward {
 public:
  // Refers to both.
  Backward(const Row& row, const Kept& kept) : row_(row), kept_(kept) {}

  // Gradients of the input (undefined unless wanted) and of each layer's weight, bias and slope (float32, laid out as
  // they are), in this order.
  Tensors run(const torch::Tensor& dy, const Tensors& parameters, bool of_input);

 private:
  torch::Tensor new_sums(int rows);
  torch::Tensor enter(const torch::Tensor& dy);
  torch::Tensor through(std::size_t i, const torch::Tensor& dz);
  torch::Tensor input_gradient(const torch::Tensor& dz) const;
  bool enough_wait() const;
  void make_waiting(std::size_t first);
  void add_sums();

  const Row& row_;
  const Kept& kept_;
  Tensors waiting_;  // dz of layers, from one down, whose weights' gradients are still to be made
  Tensors sums_;     // from the last layer down
  Tensors results_;
};

}  // namespace reelgrad::own
