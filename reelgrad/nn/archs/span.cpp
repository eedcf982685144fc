// SPAN: six blocks whose own output weighs them, without parameters for it, and one pixel shuffle.
// Source: "Swift Parameter-free Attention Network for Efficient Super-Resolution" (Wan et al., 2023) and the key layout
// in which its weights are exchanged. Weights start as PyTorch's convolutions do, like the reference's.
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "reelgrad/base/error.h"
#include "reelgrad/nn/architecture_tools.h"

namespace reelgrad {
namespace span {
namespace {

using Tensors = std::vector<torch::Tensor>;

constexpr int kBlocks = 6;
constexpr int kGain = 2;  // how much wider the layers between are

struct SpanOptions {
  int channels = 3;  // in and out
  int features = 48;
  int scale = 2;
  bool norm = false;  // the input less the mean colour of DIV2K, times 255
};

struct Convolution {
  torch::Tensor weight, bias;
};

// What is trained: convolutions of 1×1, 3×3 and 1×1 in a row, and one of 1×1 beside them.
struct Parts {
  Convolution first, middle, last, beside;
};

// The one 3×3 convolution that the parts are together, as nothing between them bends; at the picture's border too,
// since the first of them sees the zeros around it. Differentiable.
Convolution merge(const Parts& parts) {
  const c10::impl::ExcludeDispatchKeyGuard in_full_precision(c10::autocast_dispatch_keyset);
  const torch::Tensor &middle = parts.middle.weight, &beside = parts.beside.weight;
  const torch::Tensor first = parts.first.weight.flatten(1), last = parts.last.weight.flatten(1);
  const std::int64_t out = beside.size(0), in = beside.size(1), wide = middle.size(1);
  // The last on the middle one: [out, 9, wide].
  const torch::Tensor two = last.matmul(middle.flatten(1)).view({out, wide, 9}).transpose(1, 2);
  const torch::Tensor three = two.reshape({out * 9, wide}).matmul(first).view({out, 9, in}).transpose(1, 2);
  const torch::Tensor bias = two.sum(1).mv(parts.first.bias) + last.mv(parts.middle.bias);
  return {three.reshape({out, in, 3, 3}) + at::constant_pad_nd(beside, {1, 1, 1, 1}),
          bias + parts.last.bias + parts.beside.bias};
}

Parts in_float64(const Parts& parts) {
  const auto wide = [](const Convolution& conv) {
    return Convolution{conv.weight.to(torch::kFloat64), conv.bias.to(torch::kFloat64)};
  };
  return {wide(parts.first), wide(parts.middle), wide(parts.last), wide(parts.beside)};
}

// Conv3XC. It is computed merged, in training as well: the same values and gradients for a fraction of the work.
class Conv3xcImpl : public torch::nn::Module {
 public:
  Conv3xcImpl(int in, int out);

  torch::Tensor forward(const torch::Tensor& x, Activation activation = Activation::none);
  void refresh();  // what evaluation uses

 private:
  Convolution trained(const std::string& key, int in, int out, int kernel);

  Parts parts_;
  Convolution merged_;  // buffers: nothing trains what follows from the parts
};
TORCH_MODULE(Conv3xc);

Conv3xcImpl::Conv3xcImpl(int in, int out)
    : parts_{.first = trained("conv.0", in, in * kGain, 1),
             .middle = trained("conv.1", in * kGain, out * kGain, 3),
             .last = trained("conv.2", out * kGain, out, 1),
             .beside = trained("sk", in, out, 1)} {
  const auto merged = register_module("eval_conv", std::make_shared<torch::nn::Module>("eval_conv"));
  merged_.weight = merged->register_buffer("weight", torch::zeros({out, in, 3, 3}));
  merged_.bias = merged->register_buffer("bias", torch::zeros({out}));
  refresh();
}

Convolution Conv3xcImpl::trained(const std::string& key, int in, int out, int kernel) {
  const torch::nn::Conv2d conv(torch::nn::Conv2dOptions(in, out, kernel));
  register_at(*this, key, conv.ptr());
  return {conv->weight, conv->bias};
}

torch::Tensor Conv3xcImpl::forward(const torch::Tensor& x, Activation activation) {
  const Convolution conv = is_training() ? merge(parts_) : merged_;
  return conv3x3_act(x, conv.weight, conv.bias, activation);
}

void Conv3xcImpl::refresh() {
  const torch::NoGradGuard no_grad;
  const Convolution merged = merge(in_float64(parts_));
  merged_.weight.copy_(merged.weight);
  merged_.bias.copy_(merged.bias);
}

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
  void derive(NamedTensors& state) const override;

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
  constexpr std::array<double, 3> kMean{0.4488, 0.4371, 0.4040};
  constexpr double kRange = 255;
  const torch::Tensor mean = at::empty({1, 3, 1, 1}, input.options());
  for (std::size_t i = 0; i < kMean.size(); ++i) mean.select(1, i).fill_(kMean[i]);  // nothing is copied from the host
  return (input - mean) * kRange;
}

void Span::train(bool on) {
  Network::train(on);
  if (on) return;
  for (const auto& module : modules(/*include_self=*/false)) {
    if (auto* conv = module->as<Conv3xcImpl>()) conv->refresh();
  }
}

torch::Tensor& tensor_at(NamedTensors& state, const std::string& key) {
  const auto found = std::ranges::find(state, key, &NamedTensors::value_type::first);
  if (found == state.end()) fail(fmt::format("a state of SPAN has no tensor {}", key));
  return found->second;
}

void Span::derive(NamedTensors& state) const {
  const torch::NoGradGuard no_grad;
  for (const auto& item : named_modules("", /*include_self=*/false)) {
    if (item.value()->as<Conv3xcImpl>() == nullptr) continue;
    const auto convolution = [&](const char* part) {
      const std::string key = item.key() + part;
      return Convolution{tensor_at(state, key + ".weight"), tensor_at(state, key + ".bias")};
    };
    const Parts parts{convolution(".conv.0"), convolution(".conv.1"), convolution(".conv.2"), convolution(".sk")};
    const Convolution merged = merge(in_float64(parts));
    for (const auto& [name, value] : {std::pair{"weight", merged.weight}, std::pair{"bias", merged.bias}}) {
      torch::Tensor& written = tensor_at(state, fmt::format("{}.eval_conv.{}", item.key(), name));
      written = value.to(written.scalar_type());
    }
  }
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
