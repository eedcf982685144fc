// Small networks with known properties, for the tests of this folder.
#pragma once
#include <torch/torch.h>

#include <atomic>
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

// Weighted means of three frames each, then of the three that those are, in two stages. With a noise level it takes
// that off.
class StagedMixer : public Network {
 public:
  explicit StagedMixer(bool noise_level = false) {
    info_.window = 5;
    info_.noise_level = noise_level;
    register_parameter("weights", torch::tensor({0.2F, 0.5F, 0.3F}));
  }
  torch::Tensor forward(torch::Tensor input) override {
    std::vector<torch::Tensor> parts;
    for (int i = 0; i < 3; ++i) parts.push_back(mean(input.narrow(1, i, 3)));
    return joined(parts, input);
  }
  std::optional<WindowStages> window_stages() override {
    return WindowStages{.frames = 3,
                        .first =
                            [this](const torch::Tensor& part) {
                              ++firsts;
                              if (fails.exchange(false)) throw std::runtime_error("the first stage is torn");
                              return mean(part);
                            },
                        .second =
                            [this](const std::vector<torch::Tensor>& parts, const torch::Tensor& window) {
                              TORCH_CHECK_WITH(OutOfMemoryError, !memory_is_short, "pretending that the card is full");
                              return joined(parts, window);
                            }};
  }
  NetworkInfo info() const override { return info_; }

  std::atomic<int> firsts = 0;                // runs of the first stage
  std::atomic<bool> fails = false;            // the next of them
  std::atomic<bool> memory_is_short = false;  // for the second stage

 private:
  torch::Tensor mean(const torch::Tensor& frames) { return (frames * weights().view({1, -1, 1, 1, 1})).sum(1); }
  torch::Tensor joined(const std::vector<torch::Tensor>& parts, const torch::Tensor& window) {
    const torch::Tensor all = mean(torch::stack(parts, 1));
    if (!info_.noise_level) return all;
    return all.narrow(1, 0, 3) - window.select(1, 2).narrow(1, 3, 1);
  }
  torch::Tensor weights() { return parameters().front(); }

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
