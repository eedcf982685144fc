// Conv3XC, the convolution of SPAN and its kin: trained as convolutions of 1×1, 3×3 and 1×1 in a row with one of 1×1
// beside them, computed as the one 3×3 convolution that they are together.
#pragma once
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <string>

#include "reelgrad/nn/conv_act.h"
#include "reelgrad/nn/weights.h"

namespace reelgrad {

// Keys: conv.0, conv.1 and conv.2, sk, and of the merged one, which are buffers, eval_conv.
class Conv3xcImpl : public torch::nn::Module {
 public:
  struct Convolution {
    torch::Tensor weight, bias;
  };
  struct Parts {
    Convolution first, middle, last, beside;  // of 1×1, 3×3, 1×1 and 1×1
  };

  Conv3xcImpl(int in, int out);

  // Merged, in training as well: the same values and gradients for a fraction of the work.
  torch::Tensor forward(const torch::Tensor& x, Activation activation = Activation::none);

  void refresh();  // what evaluation uses

  // Differentiable.
  static Convolution merge(const Parts& parts);

 private:
  Convolution trained(const std::string& key, int in, int out, int kernel);

  Parts parts_;
  Convolution merged_;  // buffers: nothing trains what follows from the parts
};
TORCH_MODULE(Conv3xc);

// Every one of them in `network`: for its train(false), and for its derive().
void refresh_conv3xc(torch::nn::Module& network);
void derive_conv3xc(const torch::nn::Module& network, NamedTensors& state);

}  // namespace reelgrad
