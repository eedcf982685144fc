// Windows for two frames that follow each other: what a temporal loss looks at.
#pragma once
#include <torch/types.h>

namespace reelgrad {

// `frames`, [N, T + 1, C, H, W], holds the windows of two adjacent middle frames. Returns both as the network's input,
// the two of a sample one after the other: [2 N, T, C, H, W], or a view [2 N, C, H, W] of it where T is 1.
inline torch::Tensor windows_of_pairs(const torch::Tensor& frames) {
  const std::int64_t window = frames.size(1) - 1;
  if (window == 1) return frames.flatten(0, 1);
  return torch::stack({frames.narrow(1, 0, window), frames.narrow(1, 1, window)}, 1).flatten(0, 1);
}

}  // namespace reelgrad
