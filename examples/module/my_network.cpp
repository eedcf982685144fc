// A network of your own: residual blocks at input size, then one pixel shuffle, added to the enlarged input. In a
// config: [model] arch = "module", module = "build/libmy_network.so", args = { features = 32, blocks = 4 }.
#include <torch/nn/functional/upsampling.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/conv.h>

#include <stdexcept>
#include <vector>

#include "reelgrad/nn/module.h"

namespace {

namespace functional = torch::nn::functional;

torch::nn::Conv2d conv3x3(int in, int out) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).padding(1));
}

class Block : public torch::nn::Module {
 public:
  explicit Block(int features)
      : first_(register_module("first", conv3x3(features, features))),
        second_(register_module("second", conv3x3(features, features))) {}

  torch::Tensor forward(const torch::Tensor& x) { return x + second_->forward(torch::relu(first_->forward(x))); }

 private:
  torch::nn::Conv2d first_, second_;
};

class MyNetwork : public reelgrad::Network {
 public:
  explicit MyNetwork(const reelgrad::ModuleRequest& request) {
    if (request.window != 1) throw std::invalid_argument("it looks at single frames, set data.window = 1");
    const int features = request.integer("features", 32, 1, 1024);
    const int blocks = request.integer("blocks", 4, 1, 256);
    info_ = {.scale = request.scale,
             .in_channels = request.channels,
             .out_channels = request.channels,
             .receptive_radius_px = 2 * blocks + 2};
    head_ = register_module("head", conv3x3(request.channels, features));
    blocks_ = register_module("blocks", torch::nn::ModuleList());
    for (int i = 0; i < blocks; ++i) blocks_->push_back(std::make_shared<Block>(features));
    tail_ = register_module("tail", conv3x3(features, request.channels * request.scale * request.scale));
  }

  torch::Tensor forward(torch::Tensor input) override {
    std::vector<torch::Tensor> values{input};
    for (const reelgrad::NetworkSegment& segment : segments()) values = segment(values);
    return values.front();
  }

  reelgrad::NetworkInfo info() const override { return info_; }

  // Where gradient checkpointing may cut: after the head and after every block. The tail needs the input again, so it
  // is handed through.
  std::vector<reelgrad::NetworkSegment> segments() override {
    using Tensors = std::vector<torch::Tensor>;
    std::vector<reelgrad::NetworkSegment> segments;
    segments.push_back([this](const Tensors& in) { return Tensors{head_->forward(in[0]), in[0]}; });
    for (std::size_t i = 0; i < blocks_->size(); ++i) {
      Block& block = blocks_->at<Block>(i);
      segments.push_back([&block](const Tensors& in) { return Tensors{block.forward(in[0]), in[1]}; });
    }
    segments.push_back([this](const Tensors& in) { return Tensors{enlarged(in[0], in[1])}; });
    return segments;
  }

 private:
  torch::Tensor enlarged(const torch::Tensor& features, const torch::Tensor& input) {
    const double scale = info_.scale;
    const auto nearest =
        functional::InterpolateFuncOptions().scale_factor(std::vector<double>{scale, scale}).mode(torch::kNearest);
    return torch::pixel_shuffle(tail_->forward(features), info_.scale) + functional::interpolate(input, nearest);
  }

  reelgrad::NetworkInfo info_;
  torch::nn::Conv2d head_{nullptr}, tail_{nullptr};
  torch::nn::ModuleList blocks_;
};

}  // namespace

REELGRAD_NETWORK(MyNetwork)
