// A convolution with spectral norm, which can be left out.
#pragma once
#include <torch/nn/module.h>
#include <torch/types.h>

#include "reelgrad/nn/conv_act.h"

namespace reelgrad {

struct SpectralConvOptions {
  int in, out, kernel;
  int stride = 1, padding = 0;
  bool bias = true;
  bool spectral = false;
  bool second_derivatives = false;  // has them: by torch's operations alone
};

// Parameters and start are Conv2d's. With spectral norm ("Spectral Normalization for Generative Adversarial Networks",
// Miyato et al., 2018) names, start and arithmetic are those of torch.nn.utils.spectral_norm: the parameter weight_orig
// and the buffers weight_u [out] and weight_v [in * kernel^2].
class SpectralConv2d : public torch::nn::Module {
 public:
  explicit SpectralConv2d(const SpectralConvOptions& options);

  // The weight, with spectral norm divided by the estimate of its largest singular value: in training mode after one
  // power iteration, which changes the buffers; differentiable. Computed in the parameters' type, whatever autocast
  // says, and without waiting for the card.
  torch::Tensor make_weight();

  // `weight`: of make_weight(). Several calls may share it. `activation`: none or leaky_relu_02.
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& weight,
                        Activation activation = Activation::none) const;

  const torch::Tensor& bias() const { return bias_; }  // undefined: none

 private:
  SpectralConvOptions options_;
  torch::Tensor weight_, bias_, u_, v_;
};

}  // namespace reelgrad
