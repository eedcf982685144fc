// Bilinear interpolation to twice the size.
#pragma once
#include <torch/types.h>

namespace reelgrad {

// [N, C, H, W] -> [N, C, 2H, 2W], as torch's upsample_bilinear2d with align_corners=False; differentiable any number of
// times. On a card, where a pixel's channels fill units of 16 bytes, by our own kernel: in x's type even under autocast
// (sums in float32), channels_last, and with the same bits each time, forward and backward. Elsewhere by torch, on a
// card in deterministic mode by operations whose gradients have an order, in float32.
torch::Tensor bilinear_doubling(const torch::Tensor& x);

}  // namespace reelgrad
