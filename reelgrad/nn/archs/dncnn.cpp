// DnCNN: plain 3×3 convolutions that give the noise, which is taken off the picture; with a noise level map beside the
// picture it gives the picture itself (FDnCNN).
// Source: "Beyond a Gaussian Denoiser: Residual Learning of Deep CNN for Image Denoising" (Zhang et al., 2017), and the
// key layout and the start of weights of its authors' later implementation in PyTorch.
#include <fmt/format.h>

#include <string>

#include "reelgrad/base/error.h"
#include "reelgrad/nn/architecture_tools.h"
#include "reelgrad/nn/norms.h"

namespace reelgrad {
namespace dncnn {
namespace {

using Tensors = std::vector<torch::Tensor>;

struct DncnnOptions {
  int channels = 3;  // in and out
  int features = 64;
  int depth = 17;  // convolutions, first and last included
  bool batch_norm = true;
  bool noise_map = false;
  int sigma = 15;
};

// Modules without parameters have a number too: an activation after every convolution but the last, and a
// normalisation between where there is one.
int key_of_conv(int index, bool batch_norm) {
  return index == 0 ? 0 : 2 + (index - 1) * (batch_norm ? 3 : 2);
}

class Dncnn : public Network {
 public:
  explicit Dncnn(const DncnnOptions& options);

  torch::Tensor forward(torch::Tensor input) override { return run_segments(segments_, input); }
  NetworkInfo info() const override;
  std::vector<NetworkSegment> segments() override { return segments_; }  // one a convolution

 private:
  torch::nn::Conv2d add_conv(int index);
  void add_hidden(int index);
  // Behind x, the picture passes along to where the noise is taken off it.
  Tensors with_picture(const torch::Tensor& x, const torch::Tensor& picture) const {
    return options_.noise_map ? Tensors{x} : Tensors{x, picture};
  }

  DncnnOptions options_;
  std::vector<NetworkSegment> segments_;
};

Dncnn::Dncnn(const DncnnOptions& options) : options_(options) {
  const auto first = add_conv(0);
  segments_.emplace_back([this, first](const Tensors& in) {
    const torch::Tensor x = options_.noise_map ? with_noise_map(in[0], options_.channels, options_.sigma) : in[0];
    return with_picture(conv3x3_act(x, first, Activation::relu), in[0]);
  });
  for (int i = 1; i + 1 < options.depth; ++i) add_hidden(i);
  const auto last = add_conv(options.depth - 1);
  segments_.emplace_back([this, last](const Tensors& in) {
    const torch::Tensor y = conv3x3_act(in[0], last, Activation::none);
    return Tensors{options_.noise_map ? y : in[1] - y};
  });
  constexpr double kGain = 0.2;
  init_orthogonal(*this, kGain);
}

torch::nn::Conv2d Dncnn::add_conv(int index) {
  const int in = index == 0 ? options_.channels + (options_.noise_map ? 1 : 0) : options_.features;
  const int out = index + 1 == options_.depth ? options_.channels : options_.features;
  const torch::nn::Conv2d conv = same_conv(in, out);
  register_at(*this, fmt::format("model.{}", key_of_conv(index, options_.batch_norm)), conv.ptr());
  return conv;
}

void Dncnn::add_hidden(int index) {
  const auto conv = add_conv(index);
  if (!options_.batch_norm) {
    segments_.emplace_back([this, conv](const Tensors& in) {
      return with_picture(conv3x3_act(in[0], conv, Activation::relu), in.back());
    });
    return;
  }
  torch::nn::BatchNorm2d norm(torch::nn::BatchNorm2dOptions(options_.features).eps(1e-4).momentum(0.9));
  const torch::NoGradGuard no_grad;
  norm->weight.uniform_(0.1, 1);
  register_at(*this, fmt::format("model.{}", key_of_conv(index, true) + 1), norm.ptr());
  segments_.emplace_back(
      [this, conv, norm](const Tensors& in) { return with_picture(conv_norm_relu(in[0], conv, norm), in.back()); });
}

NetworkInfo Dncnn::info() const {
  return {.in_channels = options_.channels,
          .out_channels = options_.channels,
          .receptive_radius_px = options_.depth,
          .noise_level = options_.noise_map};
}

}  // namespace
}  // namespace dncnn

std::shared_ptr<Network> make_dncnn(const NetworkSpec& spec) {
  require_single_frame(spec);
  return std::make_shared<dncnn::Dncnn>(dncnn::DncnnOptions{.channels = channels(spec.color),
                                                            .features = int_option(spec, "features"),
                                                            .depth = int_option(spec, "depth"),
                                                            .batch_norm = bool_option(spec, "batch_norm"),
                                                            .noise_map = bool_option(spec, "noise_map"),
                                                            .sigma = int_option(spec, "sigma")});
}

std::optional<NetworkSpec> detect_dncnn(const StateShapes& shapes) {
  const int modules = shapes.count_after("model.");
  if (modules < 5 || shapes.shape("model.2.weight").size() != 4 || shapes.count_after("model.1.") > 0) {
    return std::nullopt;
  }
  const bool batch_norm = shapes.has("model.3.running_mean") || shapes.has("model.3.running_var");
  const int each = batch_norm ? 3 : 2;
  const int depth = (modules - 3 + each - 1) / each + 2;
  const auto [color, noise_map] = noise_channels(
      shapes.inputs("model.0"), shapes.outputs(fmt::format("model.{}", dncnn::key_of_conv(depth - 1, batch_norm))));
  return NetworkSpec{.arch = "dncnn",
                     .scale = 1,
                     .color = color,
                     .options = {{"features", std::to_string(shapes.outputs("model.0"))},
                                 {"depth", std::to_string(depth)},
                                 {"batch_norm", batch_norm ? "true" : "false"},
                                 {"noise_map", noise_map}}};
}

}  // namespace reelgrad
