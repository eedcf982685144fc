// Runs a network over whole pictures: tiles, padding, precision, colour, several pictures side by side. `apply`,
// `preview`, validation and the plugin are its callers.
#pragma once
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reelgrad/clip/clip.h"
#include "reelgrad/config/config.h"
#include "reelgrad/nn/architectures.h"

namespace reelgrad {

struct RestoreOptions {
  static constexpr int kMeasured = -1;  // the smallest that keeps tiles within half an 8-bit code of the whole
  static constexpr int kExact = -2;     // the network's receptive radius: tiles equal the whole

  torch::Device device = torch::kCPU;
  std::string precision = "auto";  // auto | fp32 | fp16 | bf16; auto: fp32 on the CPU, fp16 on a card
  int tile_px = 0;                 // side of the input that one tile restores; 0: all, less when the card is too small
  int overlap_px = kMeasured;      // input pixels a tile sees around that
  int streams = 0;                 // pictures restored side by side; 0: chosen
  std::int64_t vram_mb = 0;        // of the card, for everything; 0: what is free
  double strength = 1;             // 0: the input, enlarged by bicubic
  bool ensemble = false;           // the mean over 8 flips and turns
  std::optional<double> sigma;     // of networks that take a noise level, in 8-bit codes; none: their own
  bool ordered_dither = false;     // of integer output
  bool capture = true;             // on a card as CUDA graphs; not where the network's tensors get other memory later
  ColorOverrides overrides;
};

// What is restored into what.
struct RestoreShape {
  VideoFormat input;
  int width = 0, height = 0;
  VideoFormat output;
  bool operator==(const RestoreShape&) const = default;
};

struct RestoreFrame {
  FrameView view;                      // in host memory or on this card
  std::optional<std::int64_t> number;  // the same number is the same picture, which may be kept
};

struct RestoreCall {
  std::vector<RestoreFrame> window;      // in the order of time
  std::optional<FrameView> sigma;        // a gray picture of the input's size, full range: the noise level in [0, 1]
  std::string clip;                      // for messages, as
  std::int64_t frame = 0;                // the middle one's number
  std::function<bool()> stop_requested;  // may be empty; polled before every tile: true ends the call (interrupted)
};

// A copy shares everything with its original. Thread-safe: calls of streams() threads run side by side.
class Restorer {
 public:
  // Takes the network over: moves it to the device, eval mode. Throws usage for options that cannot be.
  Restorer(std::shared_ptr<Network> network, const NetworkSpec& spec, RestoreOptions options);

  // Settles tiles, overlap and streams, and records the graphs. Throws usage for formats that cannot be.
  void prepare(const RestoreShape& shape);

  // Restores the middle frame of the window, or all of them (outputs()), into `outs`, of one format, scale × the
  // input's size. Prepares where it was not for this. Colour by the middle frame's properties; returns what the outputs
  // hold. A gray network restores a colour clip's luma; its chroma is enlarged by bicubic. What comes is the same
  // whatever was restored before or is meanwhile. Throws out_of_memory when even small tiles do not fit.
  ColorProps restore(const RestoreCall& call, const std::vector<MutableFrameView>& outs);

  // One picture of a clip; `name` and `frame` are for messages.
  void restore(std::span<const FrameView> window, const std::string& name, std::int64_t frame,
               const MutableFrameView& out);

  // [C, H, W] (or [T, C, H, W] when the window is larger than 1) -> [C, H * scale, W * scale] (or [T, …] of networks
  // that restore all frames) on the device, not clamped: in the network's precision on a card, float32 on the CPU.
  torch::Tensor run(const torch::Tensor& input);

  // What restore() will return for this frame, of a picture in this format. Throws usage as it does.
  ColorProps output_color(const FrameView& input, const std::string& clip, const VideoFormat& output) const;

  NetworkInfo info() const;
  int outputs() const;  // pictures of a call
  int streams() const;
  torch::Device device() const;
  const NetworkSpec& spec() const;
  // What was decided, for one line to the user: "whole frames, fp16, cuda:0, 3 streams" or "tiles of 512 px (overlap
  // 16), …".
  std::string describe() const;
  std::string arithmetic() const;  // "fp16, cuda"

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace reelgrad
