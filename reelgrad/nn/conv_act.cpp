#include "reelgrad/nn/conv_act.h"

#include "reelgrad/base/error.h"

namespace reelgrad {

torch::Tensor conv3x3_act(const torch::Tensor& input, const torch::Tensor& weight, const torch::Tensor& bias,
                          Activation activation, const torch::Tensor& slope) {
  const torch::Tensor z = at::conv2d(input, weight, bias, /*stride=*/1, /*padding=*/1);
  switch (activation) {
    case Activation::none:
      return z;
    case Activation::prelu:
      return at::prelu(z, slope);
    case Activation::relu:
      return at::relu(z);
    case Activation::leaky_relu:
      return at::leaky_relu(z, 0.1);
    case Activation::leaky_relu_02:
      return at::leaky_relu(z, 0.2);
    case Activation::silu:
      return at::silu(z);
    case Activation::mish:
      return at::mish(z);
    case Activation::sigmoid:
      return at::sigmoid(z);
  }
  fail("unknown activation");
}

}  // namespace reelgrad
