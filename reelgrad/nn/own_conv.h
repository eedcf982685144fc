// Rows of convolutions by the kernels of kernels/conv.h, as one autograd function.
#pragma once
#include <torch/types.h>

#include <span>

#include "reelgrad/nn/conv_act.h"

namespace reelgrad {

// Whether the kernels can do this row on this card: compute capability 9.0, float16 or bfloat16 (of `input`, or by
// autocast), the channels that they have. REELGRAD_CONV in the environment: "own" (the same as unset), or "aten" or
// "cudnn", which both leave the row to torch.
bool own_conv_takes(const torch::Tensor& input, std::span<const ConvLayer> layers);

// Channels of a last layer with an end.
inline constexpr std::int64_t kOwnConvMostShuffled = 48, kOwnConvMostShuffledIn = 64;

// What follows the last layer; `picture` undefined: nothing.
struct OwnConvEnd {
  torch::Tensor picture;
  int scale = 1;
};

// -> channels_last in the type of the computation; with an end, contiguous in what that type and the picture's make.
// Asynchronous on the current stream; can be captured. No second derivatives.
torch::Tensor own_conv(const torch::Tensor& input, std::span<const ConvLayer> layers, const OwnConvEnd& end = {});

}  // namespace reelgrad
