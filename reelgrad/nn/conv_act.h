// A 3×3 convolution followed by its activation, as one op: networks go through here so that a fused kernel can take its
// place, forward and backward.
#pragma once
#include <torch/types.h>

namespace reelgrad {

// leaky_relu: slope 0.1; leaky_relu_02: slope 0.2.
enum class Activation { none, prelu, relu, leaky_relu, leaky_relu_02, silu, mish, sigmoid };

// `input` [N, I, H, W], `weight` [O, I, 3, 3], `bias` [O] or undefined, zero padding of 1 -> [N, O, H, W]. `slope` [O]
// for prelu, else undefined. Any floating dtype; follows autocast; differentiable.
torch::Tensor conv3x3_act(const torch::Tensor& input, const torch::Tensor& weight, const torch::Tensor& bias,
                          Activation activation, const torch::Tensor& slope = {});

}  // namespace reelgrad
