// A module with every fault that user_module_test.cpp asks for by model.args.
#include <torch/nn/modules/conv.h>

#include <stdexcept>

#include "reelgrad/nn/module.h"

namespace {

class TestModule : public reelgrad::Network {
 public:
  explicit TestModule(const reelgrad::ModuleRequest& request)
      : scale_(request.scale), fault_(request.text("fault", "none")) {
    if (fault_ == "constructor") throw std::runtime_error("no such filter");
    if (fault_ == "odd object") throw 5;
    if (fault_ == "scale") ++scale_;
    const int features = request.integer("features", 4, 1, 64);
    head_ = register_module("head", conv(request.channels, features));
    tail_ = register_module("tail", conv(features, request.channels));
    gain_ = register_parameter("gain", torch::ones({1}));
    register_buffer("runs", torch::zeros({1}));
  }

  torch::Tensor forward(torch::Tensor input) override {
    if (fault_ == "training" && is_training()) throw std::runtime_error("the filter broke");
    if (fault_ == "memory" && is_training()) TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory");
    const int size = fault_ == "output" ? 1 : scale_;
    const torch::Tensor x = tail_->forward(head_->forward(input)) * gain_;
    return x.repeat_interleave(size, 2).repeat_interleave(size, 3);
  }

  reelgrad::NetworkInfo info() const override { return {.scale = scale_, .receptive_radius_px = 2}; }

 private:
  static torch::nn::Conv2d conv(int in, int out) {
    return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).padding(1));
  }

  int scale_;
  std::string fault_;
  torch::nn::Conv2d head_{nullptr}, tail_{nullptr};
  torch::Tensor gain_;
};

}  // namespace

REELGRAD_NETWORK(TestModule)
