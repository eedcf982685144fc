// Windows for frames that follow each other: what a temporal loss and a discriminator of several frames look at.
#pragma once
#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace reelgrad {

// `frames`, [N, T + F - 1, C, H, W], holds the windows of F middle frames that follow each other. Returns them as the
// network's input, the F of a sample one after the other: [N F, T, C, H, W], or a view [N F, C, H, W] of it where T
// is 1.
inline torch::Tensor windows_of_frames(const torch::Tensor& frames, std::int64_t count) {
  const std::int64_t window = frames.size(1) - count + 1;
  if (window == 1) return frames.flatten(0, 1);
  std::vector<torch::Tensor> windows;
  for (std::int64_t first = 0; first < count; ++first) windows.push_back(frames.narrow(1, first, window));
  return torch::stack(windows, 1).flatten(0, 1);
}

}  // namespace reelgrad
