// 3×3 convolutions with their activations, as one op: networks go through here so that fused kernels can take their
// place, forward and backward. docs/kernels.md says which kernels run when; REELGRAD_CONV=aten turns ours off.
#pragma once
#include <torch/types.h>

#include <span>

namespace reelgrad {

// leaky_relu: slope 0.1; leaky_relu_02: slope 0.2.
enum class Activation { none, prelu, relu, leaky_relu, leaky_relu_02, silu, mish, gelu, sigmoid };

// `weight` [O, I, 3, 3], `bias` [O] or undefined; `slope` [O] or [1] for prelu, else undefined.
struct ConvLayer {
  torch::Tensor weight, bias;
  Activation activation = Activation::none;
  torch::Tensor slope;
};

// `input` [N, I, H, W], zero padding of 1 -> [N, O, H, W]. Any floating dtype; follows autocast; differentiable (once,
// where our kernels run).
torch::Tensor conv3x3_act(const torch::Tensor& input, const torch::Tensor& weight, const torch::Tensor& bias,
                          Activation activation, const torch::Tensor& slope = {});

// Without activation: residual + factor * convolution. `residual` [N, O, H, W].
torch::Tensor conv3x3_add(const torch::Tensor& input, const torch::Tensor& weight, const torch::Tensor& bias,
                          const torch::Tensor& residual, double factor = 1);

// One after another, with fewer passes over memory on the way back: what goes forward has the same bits, and in
// deterministic mode gradients have them too (the layers are then run by themselves).
torch::Tensor conv3x3_row(const torch::Tensor& input, std::span<const ConvLayer> layers);

// A row whose last layer, without activation, gives scale² values for each channel of `picture` [N, C, H, W], which is
// added to each of them; then the pixel shuffle -> [N, C, H * scale, W * scale].
torch::Tensor conv3x3_row_shuffled(const torch::Tensor& input, std::span<const ConvLayer> layers,
                                   const torch::Tensor& picture, int scale);

}  // namespace reelgrad
