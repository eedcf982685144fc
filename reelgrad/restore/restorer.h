// Runs a network over whole pictures: tiles, padding, precision, colour. `apply`, `preview`, validation and the plugin
// are its callers.
#pragma once
#include <torch/types.h>

#include <memory>
#include <span>
#include <string>

#include "reelgrad/clip/clip.h"
#include "reelgrad/config/config.h"
#include "reelgrad/nn/architectures.h"

namespace reelgrad {

struct RestoreOptions {
  torch::Device device = torch::kCPU;
  std::string precision = "auto";  // auto | fp32 | fp16 | bf16; auto: fp32 on the CPU, fp16 on a card
  int tile_px = 0;                 // side of the input that one tile restores; 0: all, less when the card is too small
  int overlap_px = -1;             // input pixels a tile sees around that; -1: the network's receptive radius
  ColorOverrides overrides;
};

class Restorer {
 public:
  // Takes the network over: moves it to the device, eval mode. Throws usage for a precision the device cannot do.
  Restorer(std::shared_ptr<Network> network, const NetworkSpec& spec, RestoreOptions options);

  // [C, H, W] (or [T, C, H, W] when the window is larger than 1) -> [C, H * scale, W * scale] on the device, not
  // clamped: in the network's precision on a card, float32 on the CPU. Pads to the network's multiple by reflection.
  // Thread-safe (calls are serialised). Throws out_of_memory when even small tiles do not fit.
  torch::Tensor run(const torch::Tensor& input);

  // Restores the middle frame of `window`, of pictures in host memory or on this card, into `out` (any format of the
  // input's family; scale × its size). `name` and `frame` are for messages. Colour by the middle frame's props. A gray
  // network restores a colour clip's luma; its chroma is enlarged by bicubic. Thread-safe.
  void restore(std::span<const FrameView> window, const std::string& name, std::int64_t frame,
               const MutableFrameView& out);

  NetworkInfo info() const;
  torch::Device device() const;
  const NetworkSpec& spec() const;
  // What was decided, for one line to the user: "whole frames, fp16, cuda:0" or "tiles of 512 px, …".
  std::string describe() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace reelgrad
