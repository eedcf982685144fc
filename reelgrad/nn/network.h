// What every architecture is. Users' own modules include this header too.
#pragma once
#include <torch/nn/module.h>

namespace reelgrad {

struct NetworkInfo {
  int scale = 1;  // output size / input size
  int in_channels = 3;
  int out_channels = 3;
  int window = 1;               // frames in; the middle one comes out
  int size_multiple = 1;        // input height and width must be multiples of it
  int receptive_radius_px = 0;  // input pixels around a pixel that its output depends on
};

class Network : public torch::nn::Module {
 public:
  // [N, C, H, W], or [N, T, C, H, W] when info().window > 1, values in [0, 1] -> [N, C, H * scale, W * scale].
  virtual torch::Tensor forward(torch::Tensor input) = 0;
  virtual NetworkInfo info() const = 0;
};

}  // namespace reelgrad
