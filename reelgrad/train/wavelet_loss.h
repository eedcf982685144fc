#pragma once
#include <torch/types.h>

#include <array>
#include <vector>

#include "reelgrad/config/config.h"
#include "reelgrad/train/line_filter.h"

namespace reelgrad {

// The sum over the bands of the stationary wavelet transform of their weights times the mean absolute difference: of
// each level the detail along x (lh), y (hl) and both (hh), of the last the low frequencies (ll), where the filters fit
// as a whole. Low filters sum to 1: PyWavelets' numbers over the root of 2. "Training Generative Image
// Super-Resolution Models by Wavelet-Domain Losses Enables Better Control of Artifacts" (Korkmaz et al., 2024) weighs
// them so.
class WaveletLoss {
 public:
  explicit WaveletLoss(const WaveletConfig& config);

  // d = prediction - target, [N, C, H, W], float32 or float64, at least smallest_for() a side: the transform is linear.
  torch::Tensor operator()(const torch::Tensor& d) const;

 private:
  struct Level {
    ConstantVector low, high;  // with 2^level - 1 zeros between the numbers
  };

  WaveletConfig config_;
  std::vector<Level> levels_;
};

}  // namespace reelgrad
