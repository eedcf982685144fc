// TSCUNet: U-Nets of SCUNet's blocks, in which a convolution and a transformer on windows work side by side. One U-Net
// makes three frames of five, a second one makes one of three; dense blocks and an enlargement follow.
// Source: "Practical Blind Image Denoising via Swin-Conv-UNet and Data Synthesis" (Zhang et al., 2022) for the blocks;
// aaf6aa/SCUNet and traiNNer-redux for what is made of them for video, the key layout and the start of weights.
#include <fmt/format.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "reelgrad/base/error.h"
#include "reelgrad/nn/architecture_tools.h"

namespace reelgrad {
namespace tscunet {
namespace {

using Tensors = std::vector<torch::Tensor>;
using Step = std::function<torch::Tensor(const torch::Tensor&)>;

constexpr int kWindow = 5;  // frames
constexpr int kFrames = 3;  // of a U-Net
constexpr int kLevels = 4;
constexpr int kSide = 8;  // of a transformer's window
constexpr int kPlaces = kSide * kSide;
constexpr int kHeadFeatures = 32;
constexpr int kMultiple = kSide << (kLevels - 1);  // a window of the innermost level, in pixels of the picture
constexpr int kDenseBlocks = 2;
constexpr int kGrowth = 32;
constexpr double kNoise = 0.05;

struct TscunetOptions {
  int channels = 3;  // in and out
  int features = 64;
  int blocks = 2;  // a level
  int scale = 2;
  bool residual = true;
  bool sigma = false;
  bool noise = true;
  bool shift_innermost = true;
};

// [h, 64, 64] of [h, 15, 15]: for every two places in a window the value for the way between them.
torch::Tensor between_places(const torch::Tensor& ways) {
  const torch::Tensor windows = ways.unfold(1, kSide, 1).unfold(2, kSide, 1).flip({3, 4});
  return windows.reshape({ways.size(0), kPlaces, kPlaces});
}

// In a shifted picture the last window of a row or a column holds what was on opposite sides of it: these places do not
// see one another. [count, 64, 64] of `count` windows along the axis: minus infinity there, else 0. Nothing is written
// into a part of a tensor, which no ONNX graph could hold.
torch::Tensor edge_mask(std::int64_t count, int axis, const torch::Tensor& like) {
  const auto numbers = torch::dtype(torch::kInt64).device(like.device());
  const torch::Tensor second_half = at::arange(kSide, numbers).ge(kSide / 2);
  const torch::Tensor apart = second_half.unsqueeze(1).ne(second_half);
  const torch::Tensor last = at::arange(count, numbers).eq(count - 1).view({-1, 1, 1});
  const torch::Tensor along =
      last.logical_and(apart).view(axis == 0 ? std::vector<std::int64_t>{-1, kSide, 1, kSide, 1}
                                             : std::vector<std::int64_t>{-1, 1, kSide, 1, kSide});
  const torch::Tensor hidden = along.expand({-1, kSide, kSide, kSide, kSide}).reshape({-1, kPlaces, kPlaces});
  return at::zeros({1}, like.options().requires_grad(false))
      .masked_fill(hidden, -std::numeric_limits<double>::infinity());
}

// Attention within windows of a picture [N, H, W, C]; shifted by half a window where every second block is.
class AttentionImpl : public torch::nn::Module {
 public:
  AttentionImpl(int features, bool shifted);

  torch::Tensor forward(const torch::Tensor& x);

 private:
  torch::Tensor attend(const torch::Tensor& windows);
  torch::Tensor weights(const torch::Tensor& query, const torch::Tensor& key) const;

  bool shifted_;
  int heads_;
  torch::nn::Linear embedding_, linear_;
  torch::Tensor ways_;  // [heads, 15, 15]
};
TORCH_MODULE(Attention);

AttentionImpl::AttentionImpl(int features, bool shifted)
    : shifted_(shifted),
      heads_(features / kHeadFeatures),
      embedding_(register_module("embedding_layer", torch::nn::Linear(features, 3 * features))),
      linear_(register_module("linear", torch::nn::Linear(features, features))) {
  constexpr int kWays = 2 * kSide - 1;
  constexpr double kSpread = 0.02;
  ways_ = register_parameter("relative_position_params", torch::randn({heads_, kWays, kWays}) * kSpread);
}

torch::Tensor AttentionImpl::forward(const torch::Tensor& x) {
  constexpr int kShift = kSide / 2;
  const torch::Tensor moved = shifted_ ? x.roll({-kShift, -kShift}, {1, 2}) : x;
  const std::int64_t rows = x.size(1) / kSide, columns = x.size(2) / kSide, features = x.size(3);
  const torch::Tensor windows = moved.reshape({-1, rows, kSide, columns, kSide, features}).transpose(2, 3);
  const torch::Tensor attended = attend(windows.reshape({-1, rows, columns, kPlaces, features}));
  const torch::Tensor picture =
      attended.reshape({-1, rows, columns, kSide, kSide, features}).transpose(2, 3).reshape(x.sizes());
  return shifted_ ? picture.roll({kShift, kShift}, {1, 2}) : picture;
}

// [N, rows, columns, 64, C] -> the same.
torch::Tensor AttentionImpl::attend(const torch::Tensor& windows) {
  const torch::Tensor split = embedding_(windows).unflatten(-1, {3, heads_, kHeadFeatures});
  const Tensors parts = split.permute({4, 0, 1, 2, 5, 3, 6}).unbind(0);  // of [N, rows, columns, heads, 64, 32]
  const torch::Tensor attended = weights(parts[0], parts[1]).matmul(parts[2]);
  return linear_(attended.transpose(3, 4).flatten(4, 5));
}

torch::Tensor AttentionImpl::weights(const torch::Tensor& query, const torch::Tensor& key) const {
  const double scale = 1 / std::sqrt(static_cast<double>(kHeadFeatures));
  const torch::Tensor similar = (query * scale).matmul(key.transpose(-2, -1));
  const torch::Tensor ways = between_places(ways_);
  if (!shifted_) return (similar + ways).softmax(-1);
  const torch::Tensor down = edge_mask(query.size(1), 0, ways), right = edge_mask(query.size(2), 1, ways);
  return (similar + (ways + down.view({-1, 1, 1, kPlaces, kPlaces})) + right.view({-1, 1, kPlaces, kPlaces}))
      .softmax(-1);
}

class TransformerImpl : public torch::nn::Module {
 public:
  TransformerImpl(int features, bool shifted);

  torch::Tensor forward(const torch::Tensor& x);  // [N, H, W, C]

 private:
  torch::nn::LayerNorm first_norm_, second_norm_;
  Attention attention_;
  torch::nn::Linear widen_, narrow_;
};
TORCH_MODULE(Transformer);

torch::nn::LayerNorm layer_norm(std::int64_t features) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({features}));
}

TransformerImpl::TransformerImpl(int features, bool shifted)
    : first_norm_(register_module("ln1", layer_norm(features))),
      second_norm_(register_module("ln2", layer_norm(features))),
      attention_(register_module("msa", Attention(features, shifted))),
      widen_(features, 4 * features),
      narrow_(4 * features, features) {
  register_at(*this, "mlp.0", widen_.ptr());
  register_at(*this, "mlp.2", narrow_.ptr());
}

torch::Tensor TransformerImpl::forward(const torch::Tensor& x) {
  const torch::Tensor seen = x + attention_(first_norm_(x));
  return seen + narrow_(at::gelu(widen_(second_norm_(seen))));
}

// One half of the channels is convolved, the other half goes through a transformer.
class BlockImpl : public torch::nn::Module {
 public:
  BlockImpl(int features, bool shifted, bool noise);

  torch::Tensor forward(const torch::Tensor& x);

 private:
  bool noise_;
  Transformer transformer_;
  torch::nn::Conv2d part_, join_, first_, second_;
};
TORCH_MODULE(Block);

BlockImpl::BlockImpl(int features, bool shifted, bool noise)
    : noise_(noise),
      transformer_(register_module("trans_block", Transformer(features / 2, shifted))),
      part_(register_module("conv1_1", same_conv(features, features, 1))),
      join_(register_module("conv1_2", same_conv(features, features, 1))),
      first_(same_conv(features / 2, features / 2, 3, /*bias=*/false)),
      second_(same_conv(features / 2, features / 2, 3, /*bias=*/false)) {
  register_at(*this, "conv_block.0", first_.ptr());
  register_at(*this, "conv_block.2", second_.ptr());
}

torch::Tensor BlockImpl::forward(const torch::Tensor& x) {
  const Tensors halves = part_(x).chunk(2, 1);
  const torch::Tensor inner = conv3x3_act(halves[0], first_, Activation::relu);
  const torch::Tensor convolved = conv3x3_add(inner, second_, halves[0]);
  const torch::Tensor transformed = transformer_(halves[1].permute({0, 2, 3, 1})).permute({0, 3, 1, 2});
  const torch::Tensor output = x + join_(at::cat({convolved, transformed}, 1));
  return noise_ && is_training() ? output + at::randn_like(output) * kNoise : output;
}

// ESRGAN's dense block.
class DenseBlockImpl : public torch::nn::Module {
 public:
  explicit DenseBlockImpl(int features);

  torch::Tensor forward(const torch::Tensor& x) const;

 private:
  std::vector<torch::nn::Conv2d> convs_;
};
TORCH_MODULE(DenseBlock);

constexpr double kSmall = 0.2;  // what a dense block adds, of what it makes

DenseBlockImpl::DenseBlockImpl(int features) {
  constexpr int kConvs = 5;
  for (int i = 0; i < kConvs; ++i) {
    const int out = i + 1 == kConvs ? features : kGrowth;
    convs_.push_back(register_module(fmt::format("conv{}", i + 1), same_conv(features + i * kGrowth, out)));
  }
}

torch::Tensor DenseBlockImpl::forward(const torch::Tensor& x) const {
  Tensors seen{x};
  for (std::size_t i = 0; i + 1 < convs_.size(); ++i) {
    seen.push_back(conv3x3_act(at::cat(seen, 1), convs_[i], Activation::leaky_relu_02));
  }
  return conv3x3_add(at::cat(seen, 1), convs_.back(), x, kSmall);
}

torch::Tensor twice_as_large(const torch::Tensor& x) {
  return at::upsample_nearest2d(x, {x.size(2) * 2, x.size(3) * 2});
}

struct Margin {
  std::int64_t before = 0, after = 0;
};

// Mirrored as often as it takes; a single row or column is repeated.
torch::Tensor with_margins(torch::Tensor x, Margin rows, Margin columns) {
  const auto repeat = [&x](int dimension, Margin& margin) {
    if (x.size(dimension) > 1) return;
    std::vector<std::int64_t> sizes = x.sizes().vec();
    sizes[dimension] += margin.before + margin.after;
    x = x.expand(sizes);
    margin = {};
  };
  repeat(2, rows);
  repeat(3, columns);
  const auto take = [](std::int64_t& margin, std::int64_t size) {
    const std::int64_t taken = std::min(margin, size - 1);
    margin -= taken;
    return taken;
  };
  while (rows.before + rows.after + columns.before + columns.after > 0) {
    const std::int64_t height = x.size(2), width = x.size(3);
    const std::int64_t left = take(columns.before, width), right = take(columns.after, width);
    const std::int64_t top = take(rows.before, height), bottom = take(rows.after, height);
    x = at::reflection_pad2d(x, {left, right, top, bottom});
  }
  return x;
}

// From {the features of `frames` frames, …} to {a U-Net's first layer of each three in a row, those of the middle frame
// where they are kept, …}.
NetworkSegment windows_of(int frames, const Step& head, bool keeps_middle) {
  return [head, frames, keeps_middle](const Tensors& in) {
    const torch::Tensor clip = in[0].unflatten(0, {-1, frames});
    Tensors windows;
    for (int i = 0; i + kFrames <= frames; ++i) windows.push_back(clip.narrow(1, i, kFrames));
    const std::int64_t count = static_cast<std::int64_t>(windows.size());
    Tensors out{head(at::cat(windows, 1).unflatten(1, {count, kFrames}).flatten(0, 1).flatten(1, 2))};
    if (keeps_middle) out.push_back(clip.select(1, frames / 2));
    out.insert(out.end(), in.begin() + 1, in.end());
    return out;
  };
}

class Tscunet : public Network {
 public:
  explicit Tscunet(const TscunetOptions& options);

  torch::Tensor forward(torch::Tensor input) override { return run_segments(segments_, input); }
  NetworkInfo info() const override;
  std::vector<NetworkSegment> segments() override { return segments_; }  // one a block and a change of level
  std::optional<WindowStages> window_stages() override;                  // one a U-Net

 private:
  template <typename Layer>
  Layer add(const std::string& key, Layer layer);
  Step add_conv(const std::string& key, int in, int out, bool bias, Activation activation);
  void add_step(const Step& step, bool keeps_input = false);
  void add_join(const Step& step);
  Step add_unet(const std::string& key, int frames, bool keeps_middle);
  void add_blocks(const std::string& key, int first_number, int level, bool keeps_input);
  void add_down(const std::string& key, int level);
  void add_up(const std::string& key, int level);
  void add_enlargement();
  void add_unused_sigma();

  Margin margin(std::int64_t size) const;
  torch::Tensor padded_frames(const torch::Tensor& clip) const;
  torch::Tensor without_margins(const torch::Tensor& output, const torch::Tensor& clip) const;

  TscunetOptions options_;
  Step head_;
  std::vector<NetworkSegment> segments_, first_stage_, second_stage_;
};

// Segments pass {x, the inputs of this level and of those above it, nearest first, the middle frame's features where
// there is a residual, the clip}. Frames lie behind one another in x's batch.
Tscunet::Tscunet(const TscunetOptions& options) : options_(options) {
  const int features = options.features;
  head_ = add_conv("m_head.0", options.channels, features, /*bias=*/false, Activation::none);
  segments_.emplace_back([this](const Tensors& in) { return Tensors{head_(padded_frames(in[0])), in[0]}; });
  first_stage_ = segments_;
  const Step first_head = add_unet("m_layers.0.", kWindow, options.residual);
  first_stage_.push_back(windows_of(kFrames, first_head, /*keeps_middle=*/false));
  constexpr std::ptrdiff_t kHeads = 2;  // the first segments, which know how many frames there are
  first_stage_.insert(first_stage_.end(), segments_.begin() + kHeads, segments_.end());
  const auto before = static_cast<std::ptrdiff_t>(segments_.size());
  add_unet("m_layers.1.", kFrames, /*keeps_middle=*/false);
  if (options.residual) {
    const Step beside = add_conv("m_res.0", features, features, /*bias=*/false, Activation::none);
    segments_.emplace_back([beside](const Tensors& in) { return Tensors{in[0] + beside(in[1]), in[2]}; });
  }
  add_enlargement();
  const Step tail = add_conv("m_tail.0", features, options.channels, /*bias=*/false, Activation::none);
  segments_.emplace_back([this, tail](const Tensors& in) { return Tensors{without_margins(tail(in[0]), in[1])}; });
  second_stage_.assign(segments_.begin() + before, segments_.end());
  if (options.sigma) add_unused_sigma();
}

std::optional<WindowStages> Tscunet::window_stages() {
  return WindowStages{.frames = kFrames,
                      .first = [this](const torch::Tensor& part) { return run_segments(first_stage_, part); },
                      .second =
                          [this](const Tensors& parts, const torch::Tensor& window) {
                            Tensors tensors{at::stack(parts, 1).flatten(0, 1)};
                            if (options_.residual) {
                              tensors.push_back(head_(padded_frames(window.narrow(1, kWindow / 2, 1))));
                            }
                            tensors.push_back(window);
                            return run_segments(second_stage_, std::move(tensors));
                          }};
}

template <typename Layer>
Layer Tscunet::add(const std::string& key, Layer layer) {
  register_at(*this, key, layer.ptr());
  return layer;
}

Step Tscunet::add_conv(const std::string& key, int in, int out, bool bias, Activation activation) {
  const auto conv = add(key, same_conv(in, out, 3, bias));
  return [conv, activation](const torch::Tensor& x) { return conv3x3_act(x, conv, activation); };
}

void Tscunet::add_step(const Step& step, bool keeps_input) {
  segments_.emplace_back([step, passed = keeps_input ? 0 : 1](const Tensors& in) {
    Tensors out{step(in[0])};
    out.insert(out.end(), in.begin() + passed, in.end());
    return out;
  });
}

void Tscunet::add_join(const Step& step) {
  segments_.emplace_back([step](const Tensors& in) {
    Tensors out(in.begin() + 1, in.end());
    out[0] = step(in[0] + in[1]);
    return out;
  });
}

// Gives its first layer.
Step Tscunet::add_unet(const std::string& key, int frames, bool keeps_middle) {
  const int features = options_.features;
  const Step head = add_conv(key + "m_head.0", kFrames * features, features, /*bias=*/false, Activation::none);
  segments_.push_back(windows_of(frames, head, keeps_middle));
  for (int level = 0; level + 1 < kLevels; ++level) add_down(key, level);
  add_blocks(key + "m_body", 0, kLevels - 1, /*keeps_input=*/true);
  for (int level = kLevels - 2; level >= 0; --level) add_up(key, level);
  const Step beside = add_conv(key + "m_res.0", features, features, /*bias=*/false, Activation::none);
  const Step tail = add_conv(key + "m_tail.0", features, features, /*bias=*/false, Activation::leaky_relu_02);
  segments_.emplace_back([beside, tail](const Tensors& in) {
    Tensors out(in.begin() + 1, in.end());
    out[0] = tail(in[0] + beside(in[1]));
    return out;
  });
  return head;
}

void Tscunet::add_blocks(const std::string& key, int first_number, int level, bool keeps_input) {
  const bool may_shift = level + 1 < kLevels || options_.shift_innermost;
  for (int i = 0; i < options_.blocks; ++i) {
    const bool shifted = i % 2 == 1 && may_shift;
    Block block =
        add(fmt::format("{}.{}", key, first_number + i), Block(options_.features << level, shifted, options_.noise));
    add_step([block](const torch::Tensor& x) mutable { return block(x); }, keeps_input && i == 0);
  }
}

void Tscunet::add_down(const std::string& key, int level) {
  const std::string name = fmt::format("{}m_down{}", key, level + 1);
  const int features = options_.features << level;
  add_blocks(name, 0, level, /*keeps_input=*/true);
  auto halve = add(fmt::format("{}.{}", name, options_.blocks),
                   torch::nn::Conv2d(torch::nn::Conv2dOptions(features, features * 2, 2).stride(2).bias(false)));
  add_step([halve](const torch::Tensor& x) mutable { return halve(x); });
}

void Tscunet::add_up(const std::string& key, int level) {
  const std::string name = fmt::format("{}m_up{}", key, level + 1);
  const int features = options_.features << level;
  const Step first = add_conv(name + ".0.up.1", features * 2, features * 2, /*bias=*/true, Activation::leaky_relu_02);
  const Step second = add_conv(name + ".0.up.3", features * 2, features, /*bias=*/true, Activation::leaky_relu_02);
  add_join([first, second](const torch::Tensor& x) { return second(first(twice_as_large(x))); });
  add_blocks(name, 1, level, /*keeps_input=*/false);
}

// Keys count activations and enlargements too.
void Tscunet::add_enlargement() {
  const std::string key = "m_upsample.0.up.";
  const int features = options_.features;
  for (int i = 0; i < kDenseBlocks; ++i) {
    const auto dense = [&](int number) { return add(fmt::format("{}{}.rdb{}", key, i, number), DenseBlock(features)); };
    const DenseBlock first = dense(1), second = dense(2), third = dense(3);
    add_step([first](const torch::Tensor& x) { return first->forward(x); }, /*keeps_input=*/true);
    add_step([second](const torch::Tensor& x) { return second->forward(x); });
    segments_.emplace_back([third](const Tensors& in) {
      return Tensors{third->forward(in[0]) * kSmall + in[1], in[2]};
    });
  }
  int number = kDenseBlocks;
  for (int scale = options_.scale; scale > 1; scale /= 2) {
    const Step conv =
        add_conv(fmt::format("{}{}", key, number + 1), features, features, /*bias=*/true, Activation::leaky_relu_02);
    add_step([conv](const torch::Tensor& x) { return conv(twice_as_large(x)); });
    number += 3;
  }
  add_step(add_conv(fmt::format("{}{}", key, number), features, features, /*bias=*/true, Activation::leaky_relu_02));
}

// Layers of a loss that guesses how far off each pixel is: files that have them keep them.
void Tscunet::add_unused_sigma() {
  const auto keep = [this](const std::string& key, const torch::nn::Module& layer) {
    const auto kept = std::make_shared<torch::nn::Module>();
    for (const auto& item : layer.named_parameters()) kept->register_buffer(item.key(), item.value().detach());
    register_at(*this, key, kept);
  };
  constexpr int kConvs = 4;
  const int features = options_.features;
  for (int i = 0; i < kConvs; ++i) {
    keep(fmt::format("m_sigma.{}", 2 * i), *same_conv(features, features));
    keep(fmt::format("m_sigma.{}", 2 * i + 1), *torch::nn::PReLU());
  }
  keep("m_sigma_tail.0", *same_conv(features, options_.channels, 3, /*bias=*/false));
}

// To whole windows of every level and, where what is at the border counts, half of one more on each side.
Margin Tscunet::margin(std::int64_t size) const {
  const std::int64_t missing = (kMultiple - size % kMultiple) % kMultiple + (is_training() ? 0 : kMultiple);
  return {.before = (missing + 1) / 2, .after = missing / 2};
}

torch::Tensor Tscunet::padded_frames(const torch::Tensor& clip) const {
  return with_margins(clip.flatten(0, 1), margin(clip.size(3)), margin(clip.size(4)));
}

torch::Tensor Tscunet::without_margins(const torch::Tensor& output, const torch::Tensor& clip) const {
  const std::int64_t scale = options_.scale, height = clip.size(3), width = clip.size(4);
  return output.narrow(2, margin(height).before * scale, height * scale)
      .narrow(3, margin(width).before * scale, width * scale);
}

NetworkInfo Tscunet::info() const {
  // Where windows lie depends on the picture's size: tiles are not the whole. They overlap by an innermost window.
  return {.scale = options_.scale,
          .in_channels = options_.channels,
          .out_channels = options_.channels,
          .window = kWindow,
          .receptive_radius_px = kMultiple,
          .whole_picture = true};
}

}  // namespace
}  // namespace tscunet

std::shared_ptr<Network> make_tscunet(const NetworkSpec& spec) {
  require_window(spec, tscunet::kWindow);
  const int features = int_option(spec, "features");
  if (features % (2 * tscunet::kHeadFeatures) != 0) {
    fail_usage(fmt::format("tscunet: model.features = {}, allowed: multiples of {}: half of them are heads of {}",
                           features, 2 * tscunet::kHeadFeatures, tscunet::kHeadFeatures));
  }
  return std::make_shared<tscunet::Tscunet>(
      tscunet::TscunetOptions{.channels = channels(spec.color),
                              .features = features,
                              .blocks = int_option(spec, "blocks"),
                              .scale = spec.scale,
                              .residual = bool_option(spec, "residual"),
                              .sigma = bool_option(spec, "sigma"),
                              .noise = bool_option(spec, "noise"),
                              .shift_innermost = bool_option(spec, "shift_innermost")});
}

std::optional<NetworkSpec> detect_tscunet(const StateShapes& shapes) {
  if (shapes.count_after("m_layers.") == 0) return std::nullopt;
  // Modules after the dense blocks: three an enlargement, and one.
  const int after = shapes.count_after("m_upsample.0.up.") - tscunet::kDenseBlocks;
  const bool residual = shapes.has("m_res.0.weight"), sigma = shapes.count_keys("m_sigma.") > 0;
  return NetworkSpec{.arch = "tscunet",
                     .scale = 1 << std::clamp((after + 1) / 3, 0, 3),
                     .window = tscunet::kWindow,
                     .color = color_of_channels(shapes.inputs("m_head.0")).value_or(NetworkColor::rgb),
                     .options = {{"features", std::to_string(shapes.outputs("m_head.0"))},
                                 {"blocks", std::to_string(shapes.count_after("m_layers.0.m_body."))},
                                 {"residual", residual ? "true" : "false"},
                                 {"sigma", sigma ? "true" : "false"}}};
}

}  // namespace reelgrad
