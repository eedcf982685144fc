// Convolutions of a picture's first channels with a large kernel, as RealPLKSR has them, as one op, so that kernels of
// ours can take its place, forward and backward. docs/kernels.md says when they run.
#pragma once
#include <torch/types.h>

namespace reelgrad {

// `input` [N, C, H, W] whose first I channels give way to their convolution with `weight` [I, I, K, K] of an odd K,
// plus `bias` [I], with zeros around the picture; the other channels stay. Any floating dtype; follows autocast;
// differentiable (once, where our kernels run). Without gradients the result may take the input's place.
torch::Tensor large_conv(const torch::Tensor& input, const torch::Tensor& weight, const torch::Tensor& bias);

// Whether our kernels do that: on a card of compute capability 8.0 or later, in float16 or bfloat16, 17 × 17 of 16
// channels, of all together a multiple of 8, unless REELGRAD_CONV leaves convolutions to torch.
bool own_large_conv_takes(const torch::Tensor& input, const torch::Tensor& weight, const torch::Tensor& bias);

}  // namespace reelgrad
