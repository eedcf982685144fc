// SPAN: six blocks whose own output weighs them, without parameters for it, and one pixel shuffle.
// Source: "Swift Parameter-free Attention Network for Efficient Super-Resolution" (Wan et al., 2023) and the key layout
// in which its weights are exchanged. Weights start as PyTorch's convolutions do, like the reference's.
#include <fmt/format.h>

#include <string>

#include "reelgrad/base/error.h"
#include "reelgrad/nn/architecture_tools.h"
#include "reelgrad/nn/conv3xc.h"
#include "reelgrad/nn/span_body.h"

namespace reelgrad {
namespace span {
namespace {

using Tensors = std::vector<torch::Tensor>;

struct SpanOptions {
  int channels = 3;  // in and out
  int features = 48;
  int scale = 2;
  bool norm = false;  // the input less the mean colour of DIV2K, times 255
};

class BlockImpl : public torch::nn::Module {
 public:
  explicit BlockImpl(int features)
      : first_(register_module("c1_r", Conv3xc(features, features))),
        second_(register_module("c2_r", Conv3xc(features, features))),
        third_(register_module("c3_r", Conv3xc(features, features))) {}

  // {output, what came out of the first convolution and its activation}
  Tensors forward(const torch::Tensor& x) {
    const torch::Tensor inner = first_(x, Activation::silu);
    return {weighed_by_itself(third_(second_(inner, Activation::silu)), x), inner};
  }

 private:
  Conv3xc first_, second_, third_;
};
TORCH_MODULE(Block);

class Span : public Network {
 public:
  explicit Span(const SpanOptions& options);

  torch::Tensor forward(torch::Tensor input) override { return run_segments(segments_, input); }
  NetworkInfo info() const override;
  std::vector<NetworkSegment> segments() override { return segments_; }  // one a block
  void train(bool on = true) override;
  void derive(NamedTensors& state) const override { derive_conv3xc(*this, state); }

 private:
  torch::Tensor normalised(const torch::Tensor& input) const;

  SpanOptions options_;
  Conv3xc first_;
  SpanBody body_;
  std::vector<NetworkSegment> segments_;
};

Span::Span(const SpanOptions& options)
    : options_(options),
      first_(register_module("conv_1", Conv3xc(options.channels, options.features))),
      body_(*this, add_span_blocks<Block>(*this, options.features), options.features, options.channels, options.scale),
      segments_(body_.segments([this](const torch::Tensor& input) { return first_(normalised(input)); })) {
  // The key says that there is no normalisation; its value says nothing.
  if (!options.norm) register_buffer("no_norm", torch::zeros({1}));
}

torch::Tensor Span::normalised(const torch::Tensor& input) const {
  if (!options_.norm) return input;
  constexpr double kRange = 255;
  return (input - mean_colour(input)) * kRange;
}

void Span::train(bool on) {
  Network::train(on);
  if (!on) refresh_conv3xc(*this);
}

NetworkInfo Span::info() const {
  return {.scale = options_.scale,
          .in_channels = options_.channels,
          .out_channels = options_.channels,
          .receptive_radius_px = 3 * kSpanBlocks + 3};
}

}  // namespace
}  // namespace span

std::shared_ptr<Network> make_span(const NetworkSpec& spec) {
  require_single_frame(spec);
  const bool norm = bool_option(spec, "norm");
  if (norm && channels(spec.color) != 3) {
    fail_usage("span: norm = true takes the mean of three channels from the input: not for data.color = \"gray\"");
  }
  return std::make_shared<span::Span>(span::SpanOptions{
      .channels = channels(spec.color), .features = int_option(spec, "features"), .scale = spec.scale, .norm = norm});
}

std::optional<NetworkSpec> detect_span(const StateShapes& shapes) {
  if (shapes.count_keys("conv_1.") == 0 || shapes.count_keys("block_1.c1_r.") == 0) return std::nullopt;
  const auto color = color_of_channels(shapes.inputs("conv_1.sk")).value_or(NetworkColor::rgb);
  return NetworkSpec{.arch = "span",
                     .scale = pixel_shuffle_scale(shapes.outputs("upsampler.0"), channels(color)).value_or(0),
                     .color = color,
                     .options = {{"features", std::to_string(shapes.outputs("conv_1.sk"))},
                                 {"norm", shapes.has("no_norm") ? "false" : "true"}}};
}

}  // namespace reelgrad
