// RealPLKSR: blocks in which a quarter of the channels see through one large kernel, and one upsampler.
// Sources: "Partial Large Kernel CNNs for Efficient Super-Resolution" (Lee et al., 2024), "Learning to Upsample by
// Learning to Sample" (Liu et al., 2023) for DySample, and the key layout of both in which weights are exchanged.
#include <fmt/format.h>
#include <torch/nn/modules/normalization.h>

#include <algorithm>
#include <string>

#include "reelgrad/base/error.h"
#include "reelgrad/nn/architecture_tools.h"
#include "reelgrad/nn/channel_norm.h"
#include "reelgrad/nn/large_conv.h"
#include "reelgrad/nn/norms.h"

namespace reelgrad {
namespace realplksr {
namespace {

using Tensors = std::vector<torch::Tensor>;

constexpr int kNormGroups = 4;
constexpr double kInitialDeviation = 0.02;

struct RealPlksrOptions {
  int channels = 3;  // in and out
  int features = 64;
  int blocks = 28;
  int kernel = 17;
  int kernel_features = 16;  // that see through the large kernel
  int scale = 4;
  bool attention = true;
  bool layer_norm = true;  // else a group norm, over the whole picture
  bool dysample = false;   // else a pixel shuffle
};

// The reference cuts the distribution at ±2, a hundred deviations out: the same as a normal one.
torch::nn::Conv2d started(torch::nn::Conv2d conv) {
  const torch::NoGradGuard no_grad;
  conv->weight.normal_(0, kInitialDeviation);
  return conv;
}

// Over the channels of each pixel.
class LayerNormImpl : public torch::nn::Module {
 public:
  explicit LayerNormImpl(int features)
      : weight_(register_parameter("weight", torch::ones({features}))),
        bias_(register_parameter("bias", torch::zeros({features}))) {}

  torch::Tensor forward(const torch::Tensor& x) const {
    constexpr double kEpsilon = 1e-6;
    return channel_norm(x, weight_, bias_, kEpsilon);
  }

 private:
  torch::Tensor weight_, bias_;
};
TORCH_MODULE(LayerNorm);

class BlockImpl : public torch::nn::Module {
 public:
  explicit BlockImpl(const RealPlksrOptions& options);

  torch::Tensor forward(const torch::Tensor& x);

 private:
  LayerNorm layer_norm_{nullptr};
  torch::nn::Conv2d wider_, narrower_, large_, attention_{nullptr}, refine_;
  torch::nn::GroupNorm group_norm_{nullptr};
};
TORCH_MODULE(Block);

BlockImpl::BlockImpl(const RealPlksrOptions& options)
    : wider_(same_conv(options.features, options.features * 2)),
      narrower_(started(same_conv(options.features * 2, options.features))),
      large_(started(same_conv(options.kernel_features, options.kernel_features, options.kernel))),
      refine_(started(same_conv(options.features, options.features, 1))) {
  if (options.layer_norm) layer_norm_ = register_module("layer_norm", LayerNorm(options.features));
  register_at(*this, "channel_mixer.0", wider_.ptr());
  register_at(*this, "channel_mixer.2", narrower_.ptr());
  register_at(*this, "lk.conv", large_.ptr());
  if (options.attention) {
    attention_ = started(same_conv(options.features, options.features));
    register_at(*this, "attn.f.0", attention_.ptr());
  }
  register_module("refine", refine_);
  if (!options.layer_norm) {
    group_norm_ =
        register_module("norm", torch::nn::GroupNorm(torch::nn::GroupNormOptions(kNormGroups, options.features)));
  }
}

torch::Tensor BlockImpl::forward(const torch::Tensor& x) {
  torch::Tensor y = layer_norm_.is_empty() ? x : layer_norm_(x);
  y = conv3x3_act(conv3x3_act(y, wider_, Activation::mish), narrower_, Activation::none);
  y = large_conv(y, large_->weight, large_->bias);
  if (!attention_.is_empty()) y = y * conv3x3_act(y, attention_, Activation::sigmoid);
  y = conv1x1(y, refine_);
  if (!group_norm_.is_empty()) y = group_norm(y, group_norm_);
  return x + y;
}

// Samples the subpixels' channels, as pictures at input size, at places of its own.
class DySampleImpl : public torch::nn::Module {
 public:
  DySampleImpl(int channels, int scale);

  torch::Tensor forward(const torch::Tensor& x);

 private:
  torch::Tensor places(const torch::Tensor& x);

  int scale_, groups_;
  torch::nn::Conv2d last_{nullptr}, offset_, scope_;
  torch::Tensor start_;  // where a pixel shuffle would look, in input pixels from the pixel's middle
};
TORCH_MODULE(DySample);

// [1, 2 * groups * scale², 1, 1]: x of all, then y of all.
torch::Tensor subpixel_places(int scale, int groups) {
  const torch::Tensor line = (torch::arange(scale) + 0.5) / scale - 0.5;
  const torch::Tensor x = line.view({1, 1, scale}).expand({groups, scale, scale});
  return at::stack({x, x.transpose(1, 2)}).reshape({1, -1, 1, 1});
}

DySampleImpl::DySampleImpl(int channels, int scale)
    : scale_(scale),
      groups_(scale % 2 == 0 ? 4 : channels),
      offset_(started(same_conv(channels * scale * scale, 2 * groups_ * scale * scale, 1))),
      scope_(same_conv(channels * scale * scale, 2 * groups_ * scale * scale, 1, /*bias=*/false)) {
  const torch::NoGradGuard no_grad;
  scope_->weight.zero_();
  if (scale != 1) last_ = register_module("end_conv", same_conv(channels * scale * scale, channels, 1));
  register_module("offset", offset_);
  register_module("scope", scope_);
  start_ = register_buffer("init_pos", subpixel_places(scale, groups_));
}

// [N * groups, H * scale, W * scale, 2] from -1 to 1. In float32 at least: half has no 2000 places in a row.
torch::Tensor DySampleImpl::places(const torch::Tensor& x) {
  const std::int64_t height = x.size(2), width = x.size(3);
  const torch::ScalarType type = at::promote_types(x.scalar_type(), torch::kFloat32);
  const torch::Tensor moved = offset_(x).to(type) * scope_(x).to(type).sigmoid() * 0.5 + start_.to(type);
  const torch::TensorOptions options = x.options().dtype(type);
  const torch::Tensor columns = at::arange(width, options) + 0.5, rows = at::arange(height, options) + 0.5;
  const torch::Tensor shifts = moved.contiguous().view({x.size(0), 2, -1, height, width});
  const torch::Tensor across = (shifts.select(1, 0) + columns) * (2.0 / width) - 1;
  const torch::Tensor down = (shifts.select(1, 1) + rows.unsqueeze(1)) * (2.0 / height) - 1;
  const auto at_pixels = [&](const torch::Tensor& values) { return at::pixel_shuffle(values, scale_).flatten(0, 1); };
  return at::stack({at_pixels(across), at_pixels(down)}, -1);
}

torch::Tensor DySampleImpl::forward(const torch::Tensor& x) {
  constexpr int kBilinear = 0, kBorder = 1;
  const torch::Tensor grid = places(x);
  const torch::Tensor pictures =
      x.to(grid.scalar_type()).contiguous().view({x.size(0) * groups_, x.size(1) / groups_, x.size(2), x.size(3)});
  const torch::Tensor sampled = at::grid_sampler(pictures, grid, kBilinear, kBorder, /*align_corners=*/false)
                                    .reshape({x.size(0), x.size(1), x.size(2) * scale_, x.size(3) * scale_})
                                    .to(x.scalar_type());
  return last_.is_empty() ? sampled : last_(sampled);
}

class RealPlksr : public Network {
 public:
  explicit RealPlksr(const RealPlksrOptions& options);

  torch::Tensor forward(torch::Tensor input) override { return run_segments(segments_, input); }
  NetworkInfo info() const override;
  std::vector<NetworkSegment> segments() override { return segments_; }  // one a block

 private:
  torch::Tensor assemble(const torch::Tensor& subpixels, const torch::Tensor& input);

  RealPlksrOptions options_;
  DySample dysample_{nullptr};
  std::vector<NetworkSegment> segments_;
};

RealPlksr::RealPlksr(const RealPlksrOptions& options) : options_(options) {
  const int subpixels = options.channels * options.scale * options.scale;
  const auto first = started(same_conv(options.channels, options.features));
  const auto last = started(same_conv(options.features, subpixels));
  register_at(*this, "feats.0", first.ptr());
  segments_.emplace_back([first](const Tensors& in) {
    return Tensors{conv3x3_act(in[0], first, Activation::none), in[0]};
  });
  for (int i = 1; i <= options.blocks; ++i) {
    Block block(options);
    register_at(*this, fmt::format("feats.{}", i), block.ptr());
    segments_.emplace_back([block](const Tensors& in) mutable { return Tensors{block(in[0]), in[1]}; });
  }
  // A dropout without parameters has a number too.
  register_at(*this, fmt::format("feats.{}", options.blocks + 2), last.ptr());
  if (options.dysample) dysample_ = register_module("to_img", DySample(options.channels, options.scale));
  segments_.emplace_back(
      [this, last](const Tensors& in) { return Tensors{assemble(conv3x3_act(in[0], last, Activation::none), in[1])}; });
}

torch::Tensor RealPlksr::assemble(const torch::Tensor& subpixels, const torch::Tensor& input) {
  const torch::Tensor sum = add_repeated(subpixels, input);
  return dysample_.is_empty() ? at::pixel_shuffle(sum, options_.scale) : dysample_(sum);
}

NetworkInfo RealPlksr::info() const {
  constexpr int kUsualReach = 4;  // of DySample: what it learns has no bound
  const int block = 2 + options_.kernel / 2 + (options_.attention ? 1 : 0);
  return {.scale = options_.scale,
          .in_channels = options_.channels,
          .out_channels = options_.channels,
          .receptive_radius_px = options_.blocks * block + 2 + (options_.dysample ? kUsualReach : 0),
          .whole_picture = !options_.layer_norm};
}

RealPlksrOptions parsed(const NetworkSpec& spec) {
  RealPlksrOptions options{.channels = channels(spec.color),
                           .features = int_option(spec, "features"),
                           .blocks = int_option(spec, "blocks"),
                           .kernel = int_option(spec, "kernel"),
                           .kernel_features = int_option(spec, "kernel_features"),
                           .scale = spec.scale,
                           .attention = bool_option(spec, "attention"),
                           .layer_norm = text_option(spec, "norm") == "layer",
                           .dysample = text_option(spec, "upsampler") == "dysample"};
  if (options.kernel_features == 0) options.kernel_features = std::max(1, options.features / 4);
  if (options.kernel % 2 == 0)
    fail_usage(fmt::format("realplksr: kernel = {}, allowed: an odd number", options.kernel));
  if (options.kernel_features > options.features) {
    fail_usage(fmt::format("realplksr: kernel_features = {}, allowed: up to features = {}", options.kernel_features,
                           options.features));
  }
  if (!options.layer_norm && options.features % kNormGroups != 0) {
    fail_usage(fmt::format("realplksr: features = {}, allowed with norm = \"group\": a multiple of {}",
                           options.features, kNormGroups));
  }
  return options;
}

}  // namespace
}  // namespace realplksr

std::shared_ptr<Network> make_realplksr(const NetworkSpec& spec) {
  require_single_frame(spec);
  return std::make_shared<realplksr::RealPlksr>(realplksr::parsed(spec));
}

std::optional<NetworkSpec> detect_realplksr(const StateShapes& shapes) {
  const int layers = shapes.count_after("feats.");
  if (layers < 2) return std::nullopt;
  // A layer without weights stands between the blocks and the last convolution.
  const bool cut = shapes.outputs(fmt::format("feats.{}", layers - 1)) == 0;
  const int blocks = cut ? layers - 1 : layers - 3;
  const auto color = color_of_channels(shapes.inputs("feats.0")).value_or(NetworkColor::rgb);
  const std::int64_t out = shapes.outputs(fmt::format("feats.{}", blocks + 2));
  const bool attention = shapes.outputs("feats.1.attn.f.0") > 0, dysample = shapes.count_keys("to_img.") > 0;
  const std::int64_t features = shapes.outputs("feats.0"), seeing = shapes.outputs("feats.1.lk.conv");
  return NetworkSpec{.arch = "realplksr",
                     .scale = pixel_shuffle_scale(out, channels(color)).value_or(0),
                     .color = color,
                     .options = {{"features", std::to_string(features)},
                                 {"blocks", std::to_string(blocks)},
                                 {"kernel", std::to_string(shapes.dim("feats.1.lk.conv.weight", 2))},
                                 {"kernel_features", std::to_string(seeing * 4 == features ? 0 : seeing)},
                                 {"attention", attention ? "true" : "false"},
                                 {"norm", shapes.count_keys("feats.1.norm.") > 0 ? "group" : "layer"},
                                 {"upsampler", dysample ? "dysample" : "pixelshuffle"}}};
}

}  // namespace reelgrad
