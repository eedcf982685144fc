// What every architecture is. Users' own modules include this header too.
#pragma once
#include <torch/nn/module.h>

#include <functional>
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
};

}  // namespace reelgrad
