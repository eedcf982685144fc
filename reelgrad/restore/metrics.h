// Picture quality. PSNR = 10 log10(1 / MSE), capped at 100 dB. SSIM: Wang, Bovik, Sheikh, Simoncelli, "Image quality
// assessment: from error visibility to structural similarity" (2004): 11×11 Gaussian window, sigma 1.5, K1 0.01, K2
// 0.03, data range 1, mean over positions where the window fits and over channels.
#pragma once
#include <torch/types.h>

#include "reelgrad/train/recorder.h"

namespace reelgrad {

// All take float32 [C, H, W] in [0, 1] of equal shape on one device.
double psnr(const torch::Tensor& a, const torch::Tensor& b);
double ssim(const torch::Tensor& a, const torch::Tensor& b);

// BT.601 limited-range luma of RGB, [1, H, W]: the Y on which the super-resolution literature measures.
torch::Tensor luma(const torch::Tensor& rgb);

// All four scores of one RGB (or gray: then rgb = y) picture; values are clamped to [0, 1] first.
QualityScores quality(const torch::Tensor& picture, const torch::Tensor& target);

}  // namespace reelgrad
