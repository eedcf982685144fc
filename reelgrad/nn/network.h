// What every architecture is. Users' own modules include this header too.
#pragma once
#include <torch/nn/module.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace reelgrad {

struct NetworkInfo {
  int scale = 1;  // output size / input size
  int in_channels = 3;
  int out_channels = 3;
  int window = 1;               // frames in; the middle one comes out
  int size_multiple = 1;        // input height and width must be multiples of it
  int receptive_radius_px = 0;  // input pixels around a pixel that its output depends on
  bool whole_picture = false;   // it averages over the whole picture: beyond any radius, and tiles are not the whole
  // It also takes one more input channel, the noise level in [0, 1] at each pixel; without it, its option "sigma"
  // holds.
  bool noise_level = false;
  bool all_frames = false;  // every frame of its window comes out restored, not the middle one alone
  int fixed_px = 0;         // height and width of the only input that it takes; 0: any multiple
};

// A part of a network. Takes and gives all tensors that pass from one part to the next: the first part gets {input},
// the last gives {output}. A tensor that a later part needs is passed on as it is. It must not change its inputs in
// place.
using NetworkSegment = std::function<std::vector<torch::Tensor>(const std::vector<torch::Tensor>&)>;

// A network that looks at several frames, as two stages, so that what neighbouring windows have in common is computed
// once. In evaluation the two are forward(), but for what a kernel rounds otherwise in a larger batch. They refer to
// the network: it must outlive them.
struct WindowStages {
  int frames = 0;  // of a part: as many neighbours in the window
  // [N, frames, C, H, W] -> what is known of a part. It must depend on nothing else: not on where in the window the
  // part lies, nor on the frames beside it.
  std::function<torch::Tensor(const torch::Tensor& part)> first;
  // What first gave for each part of the window [N, T, C, H, W], T - frames + 1 of them in the order of time -> what
  // forward() gives.
  std::function<torch::Tensor(const std::vector<torch::Tensor>& parts, const torch::Tensor& window)> second;
};

class Network : public torch::nn::Module {
 public:
  // [N, C, H, W], or [N, T, C, H, W] when info().window > 1, values in [0, 1] -> [N, C, H * scale, W * scale], or, when
  // info().all_frames, [N, T, C, H * scale, W * scale].
  virtual torch::Tensor forward(torch::Tensor input) = 0;
  virtual NetworkInfo info() const = 0;

  // The finest cuts at which gradient checkpointing may divide the network, in order; run one after another they are
  // forward(), bit for bit. They refer to this network: it must outlive them and every graph that they recorded.
  virtual std::vector<NetworkSegment> segments() {
    return {[this](const std::vector<torch::Tensor>& tensors) { return std::vector{forward(tensors.front())}; }};
  }

  // Sets those tensors of a state of this network that follow from others, as the one convolution that several of
  // training are merged into. Asked for before weights are written; a network does it for itself when it leaves
  // training.
  virtual void derive(std::vector<std::pair<std::string, torch::Tensor>>& state) const { (void)state; }

  // Worth it where the first stage is a good part of the work. Nullopt: it does not work in stages.
  virtual std::optional<WindowStages> window_stages() { return std::nullopt; }
};

}  // namespace reelgrad
