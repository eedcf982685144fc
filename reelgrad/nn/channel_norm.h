// Layer norm over the channels of each pixel, as one op, so that kernels of ours can take its place, forward and
// backward.
#pragma once
#include <torch/types.h>

namespace reelgrad {

// (x - mean) / sqrt(variance + epsilon) * weight + bias, `x` [N, C, H, W], `weight` and `bias` [C] -> in x's type.
// Any floating dtype; differentiable (once, where our kernels run).
torch::Tensor channel_norm(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                           double epsilon);

// Whether our kernels do that: on a card of compute capability 8.0 or later, in float16 or bfloat16, for a multiple of
// 8 channels up to 256, unless REELGRAD_CONV leaves convolutions to torch.
bool own_channel_norm_takes(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias);

}  // namespace reelgrad
