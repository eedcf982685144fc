// Norms as restoring wants them: what training has measured is part of the convolution, and what a picture is measured
// for is measured by the whole card. In training they are torch's own.
#pragma once
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/normalization.h>
#include <torch/types.h>

namespace reelgrad {

// relu(norm(conv(x))), x [N, C, H, W]. In evaluation one convolution, whose weights the norm's have gone into.
torch::Tensor conv_norm_relu(const torch::Tensor& x, const torch::nn::Conv2d& conv, const torch::nn::BatchNorm2d& norm);

// norm(x), x [N, C, H, W] in any layout.
torch::Tensor group_norm(const torch::Tensor& x, const torch::nn::GroupNorm& norm);

}  // namespace reelgrad
