// Rows of convolutions by the kernels of kernels/conv.h, as one autograd function.
#pragma once
#include <torch/types.h>

#include <cstddef>
#include <span>

#include "reelgrad/nn/conv_act.h"

namespace reelgrad {

// What follows the last layer, which has no activation then: the shuffle with `picture` as in conv3x3_row_shuffled(),
// or residual + factor * convolution; both undefined: nothing.
struct OwnConvEnd {
  torch::Tensor picture;
  int scale = 1;
  torch::Tensor residual;
  double factor = 1;
};

// How many layers, from the first on, the kernels can do as one row on this card: see has_conv(); float16 or bfloat16
// (of `input`, or by autocast); the channels that they have. All of them only if they can do the end too. The choice of
// require_known_conv_choice() is made here.
std::size_t own_conv_takes(const torch::Tensor& input, std::span<const ConvLayer> layers, const OwnConvEnd& end = {});

// -> channels_last in the type of the computation, a pixel's channels a multiple of 8 apart; with a shuffle, contiguous
// in what that type and the picture's make. Asynchronous on the current stream; can be captured. No second derivatives.
torch::Tensor own_conv(const torch::Tensor& input, std::span<const ConvLayer> layers, const OwnConvEnd& end = {});

// Throws unless REELGRAD_CONV in the environment is something that is known: "own" (the same as unset): the kernels for
// compute capability 9.0; "own80": those of cuda::warp, which nothing else chooses; "aten" or "cudnn", which both leave
// all to torch.
void require_known_conv_choice();

bool torch_convolves();  // by that choice

}  // namespace reelgrad
