// The way back through a row.
#pragma once
#include "reelgrad/nn/own_conv_row.h"

namespace reelgrad::own {

class Backward {
 public:
  // Refers to all. `wanted`: the parameters (three a layer) whose gradients are wanted, the others undefined.
  Backward(const Row& row, const Kept& kept, const Tensors& wanted, bool of_input);

  // From the gradient of the row's result. Once.
  void run(const torch::Tensor& dy);

  // Undefined unless wanted.
  const torch::Tensor& of_input() const { return of_input_; }
  const Tensors& of_parameters() const { return of_parameters_; }  // float32, laid out as the parameters are

 private:
  // Sums over pixels of 64 channels' gradients.
  struct Sums {
    std::size_t layer = 0;
    int block = 0;
    torch::Tensor rows;
  };

  bool wants_sums(std::size_t layer) const;
  float* new_sums(std::size_t layer, int block, int rows);
  torch::Tensor through_activation(std::size_t i, const torch::Tensor& dy, float factor);
  torch::Tensor through_convolution(std::size_t i, const torch::Tensor& dz) const;
  torch::Tensor to_layer_below(std::size_t i, const torch::Tensor& dz);
  bool enough_wait() const;
  void make_waiting();
  void add_weight_gradients(std::size_t i, const torch::Tensor& dz, std::vector<ConvWeightGradient>& gradients);
  void add_sums();

  const Row& row_;
  const Kept& kept_;
  bool wants_input_;
  std::size_t lowest_ = 0;  // layer that has to be reached
  Tensors of_parameters_;
  torch::Tensor of_input_;
  struct Waiting {
    std::size_t layer = 0;
    torch::Tensor dz;
  };
  std::vector<Waiting> waiting_;  // whose weights' gradients are still to be made
  std::vector<Sums> sums_;
};

}  // namespace reelgrad::own
