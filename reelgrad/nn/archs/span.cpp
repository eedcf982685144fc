// SPAN: six blocks whose own output weighs them, without parameters for it, and one pixel shuffle.
// Source: "Swift Parameter-free Attention Network for Efficient Super-Resolution" (Wan et al., 2023) and the key layout
// in which its weights are exchanged. Weights start as PyTorch's convolutions do, like the reference's.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "reelgrad/base/error.h"
#include "reelgrad/nn/architecture_tools.h"
#include "reelgrad/nn/conv3xc.h"

namespace reelgrad {
namespace span {
namespace {

using Tensors = std::vector<torch::Tensor>;

constexpr int kBlocks = 6;

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
    const torch::Tensor y = third_(second_(inner, Activation::silu));
    return {(y + x) * (y.sigmoid() - 0.5), inner};
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
  void add_segments();
  torch::Tensor normalised(const torch::Tensor& input) const;

  SpanOptions options_;
  Conv3xc first_, last_;
  std::vector<Block> blocks_;
  torch::nn::Conv2d join_, upsampler_;
  std::vector<NetworkSegment> segments_;
};

Span::Span(const SpanOptions& options)
    : options_(options),
      first_(register_module("conv_1", Conv3xc(options.channels, options.features))),
      last_(nullptr),
      join_(nullptr),
      upsampler_(nullptr) {
  const int features = options.features;
  for (int i = 1; i <= kBlocks; ++i) blocks_.push_back(register_module(fmt::format("block_{}", i), Block(features)));
  join_ = register_module("conv_cat", same_conv(features * 4, features, 1));
  last_ = register_module("conv_2", Conv3xc(features, features));
  upsampler_ = same_conv(features, options.channels * options.scale * options.scale);
  register_at(*this, "upsampler.0", upsampler_.ptr());
  // The key says that there is no normalisation; its value says nothing.
  if (!options.norm) register_buffer("no_norm", torch::zeros({1}));
  add_segments();
}

void Span::add_segments() {
  // From the first block on: {x, what came out of the first convolution, and of the first block}.
  segments_.emplace_back([this](const Tensors& in) {
    const torch::Tensor features = first_(normalised(in[0]));
    return Tensors{blocks_[0](features)[0], features};
  });
  segments_.emplace_back([this](const Tensors& in) { return Tensors{blocks_[1](in[0])[0], in[1], in[0]}; });
  for (int i = 2; i < kBlocks - 1; ++i) {
    segments_.emplace_back([this, i](const Tensors& in) { return Tensors{blocks_[i](in[0])[0], in[1], in[2]}; });
  }
  segments_.emplace_back([this](const Tensors& in) {
    const Tensors out = blocks_[kBlocks - 1](in[0]);
    return Tensors{out[0], in[1], in[2], out[1]};
  });
  segments_.emplace_back([this](const Tensors& in) {
    const torch::Tensor joined = join_(at::cat({in[1], last_(in[0]), in[2], in[3]}, 1));
    return Tensors{at::pixel_shuffle(conv3x3_act(joined, upsampler_, Activation::none), options_.scale)};
  });
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
          .receptive_radius_px = 3 * kBlocks + 3};
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

std::optional<NetworkSpec> detect_span(const NamedTensors& state) {
  const StateShapes shapes(state);
  const std::size_t tensors = 10 * (3 * span::kBlocks + 2) + 4;
  const bool norm = !shapes.has("no_norm");
  if (shapes.size() != tensors + (norm ? 0 : 1)) return std::nullopt;
  if (!shapes.has("block_6.c3_r.eval_conv.weight") || !shapes.has("conv_cat.weight")) return std::nullopt;
  const auto color = color_of_channels(shapes.dim("conv_1.sk.weight", 1));
  if (!color) return std::nullopt;
  const auto scale = pixel_shuffle_scale(shapes.dim("upsampler.0.weight", 0), channels(*color));
  if (!scale) return std::nullopt;
  return NetworkSpec{
      .arch = "span",
      .scale = *scale,
      .color = *color,
      .options = {{"features", std::to_string(shapes.dim("conv_1.sk.weight", 0))}, {"norm", norm ? "true" : "false"}}};
}

}  // namespace reelgrad
