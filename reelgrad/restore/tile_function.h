#pragma once
#include <torch/types.h>

#include <memory>
#include <optional>
#include <vector>

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
  std::optional<WindowStages> stages;        // of a network that is to work in them; without an ensemble

  // Channels of a frame that it takes without a noise level, and gives.
  int channels() const { return enlarges_chroma ? 3 : info.in_channels; }
  // Pictures that come of one window.
  int outputs() const { return info.all_frames ? info.window : 1; }

  // [N, (T,) C, H, W] with sides that are multiples of the network's; C one more than channels() with a noise level in
  // the last one -> [N, outputs(), channels(), H * scale, W * scale], of `type`.
  torch::Tensor operator()(const torch::Tensor& tiles) const;

  // The same in stages. Parts of a window: those of its neighbours that the first stage takes together.
  int parts() const { return info.window - stages->frames + 1; }
  // [N, stages->frames, C, H, W] of such tiles -> what is known of a part.
  torch::Tensor first(const torch::Tensor& part) const;
  // What first gave for each part, and the tiles -> as operator().
  torch::Tensor second(const std::vector<torch::Tensor>& parts, const torch::Tensor& tiles) const;

 private:
  torch::Tensor seen_by_network(const torch::Tensor& tiles) const;
  torch::Tensor finished(torch::Tensor restored, const torch::Tensor& tiles) const;
  torch::Tensor run_network(const torch::Tensor& tiles) const;
  torch::Tensor run_ensemble(const torch::Tensor& tiles) const;
};

}  // namespace reelgrad
