// Compact, known as SRVGGNetCompact: convolutions at input size, then one pixel shuffle, added to the repeated input.
// Source: "Real-ESRGAN: Training Real-World Blind Super-Resolution with Pure Synthetic Data" (Wang et al., 2021) and
// the key layout in which its weights are exchanged: body.0 convolution, body.1 activation, …, body.{2n+2} convolution.
#include "reelgrad/nn/architecture_tools.h"

#include <fmt/format.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/conv.h>

#include <string>

#include "reelgrad/base/error.h"
#include "reelgrad/nn/conv_act.h"

namespace reelgrad {
namespace compact {
namespace {

struct CompactOptions {
  int channels = 3;  // in and out
  int features = 64;
  int convs = 16;  // between the first and the last
  int scale = 2;
  Activation activation = Activation::prelu;
};

class Compact : public Network {
 public:
  explicit Compact(const CompactOptions& options);

  torch::Tensor forward(torch::Tensor input) override;
  NetworkInfo info() const override;
  std::vector<NetworkSegment> segments() override;  // one a convolution; the input passes along to the last

 private:
  ConvLayer layer(std::size_t index) const;  // index in body_
  torch::Tensor run_layer(std::size_t index, const torch::Tensor& x) const;
  torch::Tensor run_last(const torch::Tensor& x, const torch::Tensor& input) const;

  CompactOptions options_;
  torch::nn::ModuleList body_;
};

Activation parse_activation(const std::string& name) {
  if (name == "relu") return Activation::relu;
  if (name == "leakyrelu") return Activation::leaky_relu;
  return Activation::prelu;
}

void push_activation(torch::nn::ModuleList& body, const CompactOptions& options) {
  // Modules without parameters keep the numbering of the keys.
  switch (options.activation) {
    case Activation::prelu:
      body->push_back(torch::nn::PReLU(torch::nn::PReLUOptions().num_parameters(options.features)));
      return;
    case Activation::relu:
      body->push_back(torch::nn::ReLU());
      return;
    case Activation::leaky_relu:
      body->push_back(torch::nn::LeakyReLU(torch::nn::LeakyReLUOptions().negative_slope(0.1)));
      return;
    default:
      break;
  }
  TORCH_CHECK(false, "Compact needs an activation");
}

Compact::Compact(const CompactOptions& options) : options_(options) {
  body_->push_back(same_conv(options.channels, options.features));
  push_activation(body_, options);
  for (int i = 0; i < options.convs; ++i) {
    body_->push_back(same_conv(options.features, options.features));
    push_activation(body_, options);
  }
  body_->push_back(same_conv(options.features, options.channels * options.scale * options.scale));
  register_module("body", body_);
}

ConvLayer Compact::layer(std::size_t index) const {
  const auto& conv = *body_->ptr<torch::nn::Conv2dImpl>(index);
  const bool last = index + 1 == body_->size();
  ConvLayer layer{.weight = conv.weight, .bias = conv.bias};
  if (last) return layer;
  layer.activation = options_.activation;
  if (options_.activation == Activation::prelu) layer.slope = body_->ptr<torch::nn::PReLUImpl>(index + 1)->weight;
  return layer;
}

torch::Tensor Compact::run_layer(std::size_t index, const torch::Tensor& x) const {
  const ConvLayer one = layer(index);
  return conv3x3_row(x, {&one, 1});
}

torch::Tensor Compact::run_last(const torch::Tensor& x, const torch::Tensor& input) const {
  const ConvLayer last = layer(body_->size() - 1);
  return conv3x3_row_shuffled(x, {&last, 1}, input, options_.scale);
}

torch::Tensor Compact::forward(torch::Tensor input) {
  std::vector<ConvLayer> layers;
  for (std::size_t i = 0; i < body_->size(); i += 2) layers.push_back(layer(i));
  return conv3x3_row_shuffled(input, layers, input, options_.scale);
}

std::vector<NetworkSegment> Compact::segments() {
  using Tensors = std::vector<torch::Tensor>;  // {x, input}
  std::vector<NetworkSegment> list{[this](const Tensors& in) { return Tensors{run_layer(0, in[0]), in[0]}; }};
  const std::size_t last = body_->size() - 1;
  for (std::size_t i = 2; i < last; i += 2) {
    list.emplace_back([this, i](const Tensors& in) { return Tensors{run_layer(i, in[0]), in[1]}; });
  }
  list.emplace_back([this](const Tensors& in) { return Tensors{run_last(in[0], in[1])}; });
  return list;
}

NetworkInfo Compact::info() const {
  return {.scale = options_.scale,
          .in_channels = options_.channels,
          .out_channels = options_.channels,
          .receptive_radius_px = options_.convs + 2};
}

}  // namespace
}  // namespace compact

std::shared_ptr<Network> make_compact(const NetworkSpec& spec) {
  require_single_frame(spec);
  return std::make_shared<compact::Compact>(
      compact::CompactOptions{.channels = channels(spec.color),
                              .features = std::stoi(spec.options.at("features")),
                              .convs = std::stoi(spec.options.at("convs")),
                              .scale = spec.scale,
                              .activation = compact::parse_activation(spec.options.at("activation"))});
}

// Convolutions have the even numbers up to the last, activations the odd ones between.
std::optional<NetworkSpec> detect_compact(const StateShapes& shapes) {
  const bool slopes = shapes.shape("body.1.weight").size() == 1 || shapes.shape("body.3.weight").size() == 1;
  const auto is_there = [&](int number) { return shapes.outputs(fmt::format("body.{}", number)) > 0; };
  int last = 0;
  while (is_there(last + 1) || is_there(last + 2)) last += 2;
  if (!slopes || last < 4) return std::nullopt;
  const auto color = color_of_channels(shapes.inputs("body.0")).value_or(NetworkColor::rgb);
  const std::int64_t out = shapes.outputs(fmt::format("body.{}", last));
  return NetworkSpec{.arch = "compact",
                     .scale = pixel_shuffle_scale(out, channels(color)).value_or(0),
                     .color = color,
                     .options = {{"features", std::to_string(shapes.outputs("body.0"))},
                                 {"convs", std::to_string(last / 2 - 1)},
                                 {"activation", "prelu"}}};
}

}  // namespace reelgrad
