// Small networks with known properties, for the tests of this folder.
#pragma once
#include <torch/torch.h>

#include <limits>
#include <memory>

#include "reelgrad/nn/network.h"

namespace reelgrad {

// Three 3×3 convolutions: a receptive radius of 3 px, and every pixel within it counts.
class ThreeConvs : public Network {
 public:
  explicit ThreeConvs(int channels = 3) {
    torch::manual_seed(7);
    for (int i = 0; i < 3; ++i) {
      convs_->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, channels, 3).padding(1)));
    }
    register_module("convs", convs_);
    info_.in_channels = info_.out_channels = channels;
    info_.receptive_radius_px = 3;
  }
  torch::Tensor forward(torch::Tensor input) override {
    if (input.size(2) * input.size(3) > memory_px) {
      TORCH_CHECK_WITH(OutOfMemoryError, false, "pretending that the card is full");
    }
    return convs_->forward(input);
  }
  NetworkInfo info() const override { return info_; }

  std::int64_t memory_px = std::numeric_limits<std::int64_t>::max();  // larger inputs run out of memory

 private:
  torch::nn::Sequential convs_;
  NetworkInfo info_;
};

// Gives each pixel (of the middle frame) back, `scale` times larger. With a size multiple m, the mean over m×m cells
// instead: which cell a pixel falls into shows whether tiles keep the grid.
class Enlarger : public Network {
 public:
  Enlarger(int scale, int channels, int multiple = 1, int window = 1) {
    info_.scale = scale;
    info_.in_channels = info_.out_channels = channels;
    info_.size_multiple = multiple;
    info_.window = window;
    register_parameter("unused", torch::zeros({1}));
  }
  torch::Tensor forward(torch::Tensor input) override {
    if (info_.window > 1) input = input.select(1, info_.window / 2);
    const int m = info_.size_multiple;
    TORCH_CHECK(input.size(2) % m == 0 && input.size(3) % m == 0, "not a multiple of ", m, ": ", input.sizes());
    if (m > 1) input = torch::avg_pool2d(input, m);
    return input.repeat_interleave(info_.scale * m, 2).repeat_interleave(info_.scale * m, 3);
  }
  NetworkInfo info() const override { return info_; }

 private:
  NetworkInfo info_;
};

// A weighted mean of the frames of a window, whose weights differ: which frame is where shows.
class FrameMixer : public Network {
 public:
  explicit FrameMixer(int window) {
    info_.window = window;
    register_parameter("weights", torch::arange(1, window + 1, torch::kFloat32) / (window * (window + 1) / 2.0));
  }
  torch::Tensor forward(torch::Tensor input) override {
    return (input * parameters().front().view({1, -1, 1, 1, 1})).sum(1);
  }
  NetworkInfo info() const override { return info_; }

 private:
  NetworkInfo info_;
};

// Restores all frames of its window: in reverse order.
class FrameReverser : public Network {
 public:
  explicit FrameReverser(int window) {
    info_.window = window;
    info_.all_frames = true;
    register_parameter("unused", torch::zeros({1}));
  }
  torch::Tensor forward(torch::Tensor input) override { return input.flip(1); }
  NetworkInfo info() const override { return info_; }

 private:
  NetworkInfo info_;
};

// Its picture is the noise level that it was given, or its own of 7.
class NoiseLevelShower : public Network {
 public:
  NoiseLevelShower() {
    info_.noise_level = true;
    register_parameter("unused", torch::zeros({1}));
  }
  torch::Tensor forward(torch::Tensor input) override {
    if (input.size(1) == 3) return torch::full_like(input, 7.0 / 255);
    return input.narrow(1, 3, 1).repeat({1, 3, 1, 1});
  }
  NetworkInfo info() const override { return info_; }

 private:
  NetworkInfo info_;
};

}  // namespace reelgrad
