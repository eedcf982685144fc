#pragma once
#include <torch/types.h>

#include <memory>

#include "reelgrad/nn/network.h"

namespace reelgrad {

// What is done with the tiles of pictures: the network, and what goes with it pixel by pixel. Thread-safe; may be
// captured.
struct TileFunction {
  std::shared_ptr<Network> network;
  NetworkInfo info;
  torch::ScalarType type = torch::kFloat32;  // the network's
  double strength = 1;                       // 0: the input, enlarged by bicubic
  bool ensemble = false;                     // the mean over 8 flips and turns
  bool enlarges_chroma = false;              // three planes come of which the network restores the first

  // Channels of a frame that it takes without a noise level, and gives.
  int channels() const { return enlarges_chroma ? 3 : info.in_channels; }
  // Pictures that come of one window.
  int outputs() const { return info.all_frames ? info.window : 1; }

  // [N, (T,) C, H, W] with sides that are multiples of the network's; C one more than channels() with a noise level in
  // the last one -> [N, outputs(), channels(), H * scale, W * scale], of `type`.
  torch::Tensor operator()(const torch::Tensor& tiles) const;

 private:
  torch::Tensor run_network(const torch::Tensor& tiles) const;
  torch::Tensor run_ensemble(const torch::Tensor& tiles) const;
};

}  // namespace reelgrad
