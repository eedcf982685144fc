// SwinIR: groups of transformer blocks that look within windows, every second one within windows moved by half a side.
// Sources: "SwinIR: Image Restoration Using Swin Transformer" (Liang et al., 2021), "Swin Transformer: Hierarchical
// Vision Transformer using Shifted Windows" (Liu et al., 2021), and the key layout in which its weights are exchanged.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>

#include "reelgrad/base/error.h"
#include "reelgrad/nn/architecture_tools.h"

namespace reelgrad {
namespace swinir {
namespace {

using Tensors = std::vector<torch::Tensor>;

constexpr int kUpsamplerFeatures = 64;
constexpr int kUsualMaskSize = 64;
constexpr double kMasked = -100;  // what is added where attention must not look
constexpr double kInitialDeviation = 0.02;

enum class Upsampler { none, direct, shuffle, nearest };

struct SwinirOptions {
  int channels = 3;  // in and out
  int features = 60;
  std::vector<int> depths{6, 6, 6, 6};  // blocks of each group
  std::vector<int> heads{6, 6, 6, 6};
  int window = 8;
  int mlp_features = 120;
  Upsampler upsampler = Upsampler::direct;
  bool three_convs = false;  // after a group, instead of one
  int scale = 2;
  int unshuffle = 1;       // folds of the picture before everything
  int mask_size = 64;      // side of the picture whose masks a file holds
  double drop_path = 0.1;  // in training, of the last block; less before it

  int upscale() const { return scale * unshuffle; }  // of the part after the groups
  int multiple() const { return window * unshuffle; }
  // The JPEG networks, which alone have windows of 7, see values from 0 to 255. Files do not say it otherwise.
  double range() const { return window == 7 ? 255 : 1; }
};

torch::nn::Linear started_linear(int in, int out) {
  torch::nn::Linear linear(in, out);
  const torch::NoGradGuard no_grad;
  // The reference cuts the distribution at ±2, a hundred deviations out: the same as a normal one.
  linear->weight.normal_(0, kInitialDeviation);
  linear->bias.zero_();
  return linear;
}

torch::nn::LayerNorm layer_norm(int features) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({features}));
}

int log2_of(int power) {
  int log = 0;
  for (; power > 1; power /= 2) ++log;
  return log;
}

// Pictures of features are [N, H, W, C] between blocks, H and W multiples of the window.

// -> [N * windows, window², C], windows row by row.
torch::Tensor cut_into_windows(const torch::Tensor& x, int window) {
  const std::int64_t rows = x.size(1) / window, columns = x.size(2) / window;
  return x.reshape({x.size(0), rows, window, columns, window, x.size(3)})
      .permute({0, 1, 3, 2, 4, 5})
      .reshape({-1, window * window, x.size(3)});
}

torch::Tensor join_windows(const torch::Tensor& windows, int window, torch::IntArrayRef shape) {
  const std::int64_t rows = shape[1] / window, columns = shape[2] / window;
  return windows.reshape({shape[0], rows, columns, window, window, shape[3]})
      .permute({0, 1, 3, 2, 4, 5})
      .reshape(shape);
}

// [window², window²]: for each pair of a window's pixels its place in a table of (2 * window - 1)² distances.
torch::Tensor distance_indices(int window) {
  const torch::Tensor places = torch::arange(window * window);
  const torch::Tensor y = places.div(window, "floor"), x = places.remainder(window);
  const torch::Tensor down = y.unsqueeze(1) - y + (window - 1), right = x.unsqueeze(1) - x + (window - 1);
  return down * (2 * window - 1) + right;
}

// [windows, window², window²] of a picture of `size`² that was rolled by `shift`: pixels that were no neighbours before
// do not look at each other.
torch::Tensor attention_masks(int size, int window, int shift) {
  const torch::Tensor places = torch::arange(size);
  const torch::Tensor parts = places.ge(size - window).to(torch::kFloat) + places.ge(size - shift).to(torch::kFloat);
  const torch::Tensor regions = (parts.unsqueeze(1) * 3 + parts).view({1, size, size, 1});
  const torch::Tensor of_windows = cut_into_windows(regions, window).squeeze(-1);
  return of_windows.unsqueeze(1).ne(of_windows.unsqueeze(2)).to(torch::kFloat) * kMasked;
}

// What a rolled picture's last row and last column of windows add to attention; undefined in a picture as it is.
struct EdgeMasks {
  torch::Tensor last_row, last_column;  // [window², window²]
};

// Masks of all windows, but without a number for each of them: other windows have none.
torch::Tensor add_edge_masks(const torch::Tensor& attention, const EdgeMasks& masks, std::int64_t rows,
                             std::int64_t columns) {
  const std::int64_t heads = attention.size(1), pixels = attention.size(2);
  const auto padded = [&](const torch::Tensor& mask, std::int64_t before) {
    return at::constant_pad_nd(mask.to(attention.scalar_type()).unsqueeze(0), {0, 0, 0, 0, before, 0});
  };
  const torch::Tensor down = padded(masks.last_row, rows - 1).view({rows, 1, 1, pixels, pixels});
  const torch::Tensor right = padded(masks.last_column, columns - 1).view({columns, 1, pixels, pixels});
  const torch::Tensor of_windows = attention.view({-1, rows, columns, heads, pixels, pixels});
  return (of_windows + down + right).view(attention.sizes());
}

class AttentionImpl : public torch::nn::Module {
 public:
  AttentionImpl(int features, int heads, int window);

  // Indices stay whole numbers in every precision.
  void to(torch::Device device, torch::Dtype type, bool non_blocking) override;
  void to(torch::Dtype type, bool non_blocking) override;
  using torch::nn::Module::to;

  // `x` [N * rows * columns, window², C] -> the same.
  torch::Tensor forward(const torch::Tensor& x, const EdgeMasks& masks, std::int64_t rows, std::int64_t columns);

 private:
  torch::Tensor distance_bias() const;

  int heads_;
  torch::nn::Linear qkv_, out_;
  torch::Tensor table_, indices_;
};
TORCH_MODULE(Attention);

AttentionImpl::AttentionImpl(int features, int heads, int window)
    : heads_(heads), qkv_(started_linear(features, 3 * features)), out_(started_linear(features, features)) {
  const int distances = 2 * window - 1;
  table_ = register_parameter("relative_position_bias_table",
                              torch::empty({distances * distances, heads}).normal_(0, kInitialDeviation));
  indices_ = register_buffer("relative_position_index", distance_indices(window));
  register_module("qkv", qkv_);
  register_module("proj", out_);
}

void AttentionImpl::to(torch::Device device, torch::Dtype type, bool non_blocking) {
  const torch::Tensor indices =
      indices_.alias().to(device, non_blocking);  // alias: what is changed is the tensor itself
  Module::to(device, type, non_blocking);
  indices_.set_data(indices);
}

void AttentionImpl::to(torch::Dtype type, bool non_blocking) {
  const torch::Tensor indices = indices_.alias();
  Module::to(type, non_blocking);
  indices_.set_data(indices);
}

// [heads, window², window²]
torch::Tensor AttentionImpl::distance_bias() const {
  const std::int64_t pixels = indices_.size(0);
  return table_.index_select(0, indices_.view(-1)).view({pixels, pixels, heads_}).permute({2, 0, 1});
}

torch::Tensor AttentionImpl::forward(const torch::Tensor& x, const EdgeMasks& masks, std::int64_t rows,
                                     std::int64_t columns) {
  const std::int64_t windows = x.size(0), pixels = x.size(1), features = x.size(2);
  const torch::Tensor qkv = qkv_(x).view({windows, pixels, 3, heads_, features / heads_}).permute({2, 0, 3, 1, 4});
  const double scale = 1 / std::sqrt(static_cast<double>(features / heads_));
  torch::Tensor attention = at::matmul(qkv.select(0, 0) * scale, qkv.select(0, 1).transpose(-2, -1));
  attention = attention + distance_bias().to(attention.scalar_type());
  if (masks.last_row.defined()) attention = add_edge_masks(attention, masks, rows, columns);
  const torch::Tensor seen = at::matmul(attention.softmax(-1), qkv.select(0, 2));
  return out_(seen.transpose(1, 2).reshape({windows, pixels, features}));
}

class BlockImpl : public torch::nn::Module {
 public:
  BlockImpl(const SwinirOptions& options, int heads, bool shifted, double drop_path);

  torch::Tensor forward(const torch::Tensor& x);  // [N, H, W, C]

 private:
  torch::Tensor look_around(const torch::Tensor& x);
  EdgeMasks edge_masks() const;
  torch::Tensor sometimes(const torch::Tensor& path) const;

  int window_, shift_;
  double drop_path_;
  torch::nn::LayerNorm before_attention_, before_mlp_;
  Attention attention_;
  torch::nn::Linear wider_, narrower_;
  torch::Tensor masks_;
};
TORCH_MODULE(Block);

BlockImpl::BlockImpl(const SwinirOptions& options, int heads, bool shifted, double drop_path)
    : window_(options.window),
      shift_(shifted ? options.window / 2 : 0),
      drop_path_(drop_path),
      before_attention_(layer_norm(options.features)),
      before_mlp_(layer_norm(options.features)),
      attention_(options.features, heads, options.window),
      wider_(started_linear(options.features, options.mlp_features)),
      narrower_(started_linear(options.mlp_features, options.features)) {
  register_module("norm1", before_attention_);
  register_module("attn", attention_);
  register_module("norm2", before_mlp_);
  register_at(*this, "mlp.fc1", wider_.ptr());
  register_at(*this, "mlp.fc2", narrower_.ptr());
  if (shifted) masks_ = register_buffer("attn_mask", attention_masks(options.mask_size, window_, shift_));
}

// Of the picture whose masks are there, as of any other: its first row's last window, and its last row's first.
EdgeMasks BlockImpl::edge_masks() const {
  if (shift_ == 0) return {};
  const auto side = std::llround(std::sqrt(static_cast<double>(masks_.size(0))));
  return {.last_row = masks_[side * (side - 1)], .last_column = masks_[side - 1]};
}

torch::Tensor BlockImpl::look_around(const torch::Tensor& x) {
  const torch::Tensor moved = shift_ == 0 ? x : at::roll(x, {-shift_, -shift_}, {1, 2});
  const torch::Tensor seen =
      attention_(cut_into_windows(moved, window_), edge_masks(), x.size(1) / window_, x.size(2) / window_);
  const torch::Tensor picture = join_windows(seen, window_, x.sizes());
  return shift_ == 0 ? picture : at::roll(picture, {shift_, shift_}, {1, 2});
}

// In training a path is left out of some of the pictures, and stronger in the others.
torch::Tensor BlockImpl::sometimes(const torch::Tensor& path) const {
  if (drop_path_ == 0 || !is_training()) return path;
  const double kept = 1 - drop_path_;
  const torch::Tensor taken = at::empty({path.size(0), 1, 1, 1}, path.options()).bernoulli_(kept);
  return path * (taken / kept);
}

torch::Tensor BlockImpl::forward(const torch::Tensor& x) {
  const torch::Tensor y = x + sometimes(look_around(before_attention_(x)));
  return y + sometimes(narrower_(at::gelu(wider_(before_mlp_(y)))));
}

// One convolution, or three with fewer features between them.
struct ResidualConv {
  torch::nn::Conv2d first{nullptr}, second{nullptr}, third{nullptr};

  torch::Tensor operator()(const torch::Tensor& x) {
    if (third.is_empty()) return conv3x3_act(x, first, Activation::none);
    constexpr double kSlope = 0.2;
    const torch::Tensor y = at::leaky_relu(second(conv3x3_act(x, first, Activation::leaky_relu_02)), kSlope);
    return conv3x3_act(y, third, Activation::none);
  }
};

torch::Tensor to_pixels_last(const torch::Tensor& x) {
  return x.permute({0, 2, 3, 1});
}

torch::Tensor to_channels_first(const torch::Tensor& x) {
  return x.permute({0, 3, 1, 2});
}

class Swinir : public Network {
 public:
  explicit Swinir(const SwinirOptions& options);

  torch::Tensor forward(torch::Tensor input) override { return run_segments(segments_, input); }
  NetworkInfo info() const override;
  std::vector<NetworkSegment> segments() override { return segments_; }  // one a block, and one after each group

 private:
  torch::nn::Conv2d add_conv(const std::string& key, int in, int out);
  ResidualConv add_residual_conv(const std::string& key);
  void add_head();
  void add_group(std::size_t index);
  void add_tail();
  void add_upsampler();
  torch::Tensor normalised(const torch::Tensor& input) const;
  torch::Tensor finished(const torch::Tensor& output, const torch::Tensor& input) const;
  torch::Tensor picture_of(const torch::Tensor& features, const torch::Tensor& input) const;

  SwinirOptions options_;
  std::vector<NetworkSegment> segments_;
  std::vector<std::function<torch::Tensor(const torch::Tensor&)>> upsampler_;  // one after another
};

Swinir::Swinir(const SwinirOptions& options) : options_(options) {
  add_head();
  for (std::size_t i = 0; i < options_.depths.size(); ++i) add_group(i);
  add_upsampler();
  add_tail();
}

torch::nn::Conv2d Swinir::add_conv(const std::string& key, int in, int out) {
  const torch::nn::Conv2d conv = same_conv(in, out);
  register_at(*this, key, conv.ptr());
  return conv;
}

ResidualConv Swinir::add_residual_conv(const std::string& key) {
  const int features = options_.features, fewer = features / 4;
  if (!options_.three_convs) return {.first = add_conv(key, features, features)};
  const torch::nn::Conv2d second = same_conv(fewer, fewer, 1);
  ResidualConv conv{.first = add_conv(key + ".0", features, fewer), .second = second};
  register_at(*this, key + ".2", second.ptr());
  conv.third = add_conv(key + ".4", fewer, features);
  return conv;
}

std::int64_t grown(std::int64_t size, std::int64_t multiple) {
  return (size + multiple - 1) / multiple * multiple;
}

// Grows a picture at the bottom and right by reflection, which can add at most the side less one: small pictures take
// several, and a single line is repeated.
torch::Tensor padded_to_multiple(torch::Tensor picture, std::int64_t multiple) {
  const std::int64_t height = grown(picture.size(2), multiple), width = grown(picture.size(3), multiple);
  if (picture.size(2) == 1) picture = at::replication_pad2d(picture, {0, 0, 0, height - 1});
  if (picture.size(3) == 1) picture = at::replication_pad2d(picture, {0, width - 1, 0, 0});
  while (picture.size(2) < height || picture.size(3) < width) {
    const std::int64_t rows = std::min(height - picture.size(2), picture.size(2) - 1);
    const std::int64_t columns = std::min(width - picture.size(3), picture.size(3) - 1);
    picture = at::reflection_pad2d(picture, {0, columns, 0, rows});
  }
  return picture;
}

// What the network works on: padded, around 0, in its range.
torch::Tensor Swinir::normalised(const torch::Tensor& input) const {
  torch::Tensor x = padded_to_multiple(input, options_.multiple());
  if (options_.channels == 3) x = x - mean_colour(x);
  return options_.range() == 1 ? x : x * options_.range();
}

torch::Tensor Swinir::finished(const torch::Tensor& output, const torch::Tensor& input) const {
  torch::Tensor y = options_.range() == 1 ? output : output / options_.range();
  if (options_.channels == 3) y = y + mean_colour(y);
  return y.narrow(2, 0, input.size(2) * options_.scale).narrow(3, 0, input.size(3) * options_.scale);
}

// Segments pass {features of a block, (those before its group,) those before all groups, the input}.
void Swinir::add_head() {
  const int fold = options_.unshuffle * options_.unshuffle;
  const auto first = add_conv(fold == 1 ? "conv_first" : "conv_first.1", options_.channels * fold, options_.features);
  torch::nn::LayerNorm norm = layer_norm(options_.features);
  register_at(*this, "patch_embed.norm", norm.ptr());
  segments_.emplace_back([this, first, norm](const Tensors& in) mutable {
    const torch::Tensor x = normalised(in[0]);
    const torch::Tensor folded = options_.unshuffle == 1 ? x : at::pixel_unshuffle(x, options_.unshuffle);
    const torch::Tensor shallow = conv3x3_act(folded, first, Activation::none);
    return Tensors{norm(to_pixels_last(shallow)), shallow, in[0]};
  });
}

void Swinir::add_group(std::size_t index) {
  const std::string key = fmt::format("layers.{}", index);
  const auto begin = options_.depths.begin() + static_cast<std::ptrdiff_t>(index);
  const int before = std::accumulate(options_.depths.begin(), begin, 0);
  const int last = std::max(1, std::accumulate(begin, options_.depths.end(), before) - 1);
  for (int i = 0; i < *begin; ++i) {
    Block block(options_, options_.heads[index], i % 2 == 1, options_.drop_path * (before + i) / last);
    register_at(*this, fmt::format("{}.residual_group.blocks.{}", key, i), block.ptr());
    segments_.emplace_back([block, first = i == 0](const Tensors& in) mutable {
      Tensors out{block(in[0])};
      out.insert(out.end(), first ? in.begin() : in.begin() + 1, in.end());
      return out;
    });
  }
  ResidualConv conv = add_residual_conv(key + ".conv");
  segments_.emplace_back([conv](const Tensors& in) mutable {
    return Tensors{to_pixels_last(conv(to_channels_first(in[0]))) + in[1], in[2], in[3]};
  });
}

void Swinir::add_tail() {
  torch::nn::LayerNorm norm = register_module("norm", layer_norm(options_.features));
  ResidualConv conv = add_residual_conv("conv_after_body");
  segments_.emplace_back([this, norm, conv](const Tensors& in) mutable {
    const torch::Tensor features = conv(to_channels_first(norm(in[0]))) + in[1];
    return Tensors{finished(picture_of(features, in[2]), in[2])};
  });
}

torch::Tensor Swinir::picture_of(const torch::Tensor& features, const torch::Tensor& input) const {
  torch::Tensor x = features;
  for (const auto& step : upsampler_) x = step(x);
  return options_.upsampler == Upsampler::none ? normalised(input) + x : x;
}

void Swinir::add_upsampler() {
  const int channels = options_.channels, features = options_.features, upscale = options_.upscale();
  const auto conv_then = [&](const std::string& key, int in, int out, Activation activation) {
    const auto conv = add_conv(key, in, out);
    upsampler_.emplace_back([conv, activation](const torch::Tensor& x) { return conv3x3_act(x, conv, activation); });
  };
  const auto shuffle = [&](int by) {
    upsampler_.emplace_back([by](const torch::Tensor& x) { return at::pixel_shuffle(x, by); });
  };
  constexpr int kWide = kUpsamplerFeatures;
  const auto wide_conv = [&] {
    conv_then("conv_before_upsample.0", features, kWide, Activation::none);
    upsampler_.emplace_back([](const torch::Tensor& x) { return at::leaky_relu(x, 0.01); });
  };
  switch (options_.upsampler) {
    case Upsampler::none:
      return conv_then("conv_last", features, channels, Activation::none);
    case Upsampler::direct:
      conv_then("upsample.0", features, channels * upscale * upscale, Activation::none);
      return shuffle(upscale);
    case Upsampler::shuffle: {
      wide_conv();
      const int steps = upscale == 3 ? 1 : log2_of(upscale), by = upscale == 3 ? 3 : 2;
      for (int i = 0; i < steps; ++i) {
        conv_then(fmt::format("upsample.{}", 2 * i), kWide, kWide * by * by, Activation::none);
        shuffle(by);
      }
      return conv_then("conv_last", kWide, channels, Activation::none);
    }
    case Upsampler::nearest:
      wide_conv();
      for (int i = 1; i <= log2_of(upscale); ++i) {
        upsampler_.emplace_back([](const torch::Tensor& x) {
          return at::upsample_nearest2d(x, {x.size(2) * 2, x.size(3) * 2});
        });
        conv_then(fmt::format("conv_up{}", i), kWide, kWide, Activation::leaky_relu_02);
      }
      conv_then("conv_hr", kWide, kWide, Activation::leaky_relu_02);
      return conv_then("conv_last", kWide, channels, Activation::none);
  }
}

// A side's pixels from first to last.
struct Seen {
  int first = 0, last = 0;

  void grow(int pixels) {
    first -= pixels;
    last += pixels;
  }

  // To whole windows, one of which begins at `origin`.
  void fill_windows(int window, int origin) {
    const auto begin_of = [&](int place) { return place - ((place - origin) % window + window) % window; };
    first = begin_of(first);
    last = begin_of(last) + window - 1;
  }
};

// At most: later convolutions are in smaller pixels.
int upsampler_radius(const SwinirOptions& options) {
  if (options.upsampler == Upsampler::none || options.upsampler == Upsampler::direct) return 1;
  const int upscale = options.upscale(), steps = upscale == 3 ? 1 : log2_of(upscale);
  double radius = 1;
  for (int i = 0; i < steps; ++i) radius += 1.0 / (1 << i);
  return static_cast<int>(std::ceil(radius + 2.0 / upscale));
}

// By a window's pixels, from the last layer back to the first.
Seen seen_by_a_window(const SwinirOptions& options) {
  const int convs = options.three_convs ? 2 : 1;
  Seen seen{0, options.window - 1};
  seen.grow(upsampler_radius(options) + convs);
  for (std::size_t group = options.depths.size(); group-- > 0;) {
    seen.grow(convs);
    for (int block = options.depths[group]; block-- > 0;) {
      seen.fill_windows(options.window, block % 2 == 1 ? options.window / 2 : 0);
    }
  }
  seen.grow(1);
  return seen;
}

// As if a pixel at a window's edge saw what any of the window's does: tiles are of whole windows.
NetworkInfo Swinir::info() const {
  const Seen seen = seen_by_a_window(options_);
  const int radius = std::max(options_.window - 1 - seen.first, seen.last);
  return {.scale = options_.scale,
          .in_channels = options_.channels,
          .out_channels = options_.channels,
          .size_multiple = options_.multiple(),  // it pads others itself, but tiles must have the same windows
          .receptive_radius_px = (radius + 1) * options_.unshuffle - 1};
}

Upsampler parse_upsampler(const std::string& name) {
  if (name == "pixelshuffledirect") return Upsampler::direct;
  if (name == "pixelshuffle") return Upsampler::shuffle;
  return name == "nearest+conv" ? Upsampler::nearest : Upsampler::none;
}

int usual_mask_size(int window) {
  return std::max(2, kUsualMaskSize / window) * window;
}

bool is_power_of_two(int value) {
  return (value & (value - 1)) == 0;
}

bool is_offered(const SwinirOptions& options) {
  const int upscale = options.upscale();
  switch (options.upsampler) {
    case Upsampler::none:
      return upscale == 1;
    case Upsampler::direct:
      return options.unshuffle == 1;
    case Upsampler::shuffle:
      return is_power_of_two(upscale) || upscale == 3;
    case Upsampler::nearest:
      return upscale == 2 || upscale == 4 || upscale == 8;
  }
  return false;
}

void check(const SwinirOptions& options, const std::string& upsampler) {
  if (options.heads.size() != options.depths.size()) {
    fail_usage(fmt::format("swinir: heads of {} groups and depths of {}, allowed: as many", options.heads.size(),
                           options.depths.size()));
  }
  for (const int heads : options.heads) {
    if (options.features % heads == 0) continue;
    fail_usage(fmt::format("swinir: features = {} with {} heads, allowed: a multiple", options.features, heads));
  }
  if (options.mask_size % options.window != 0 || options.mask_size < 2 * options.window) {
    fail_usage(fmt::format("swinir: img_size = {} with window = {}, allowed: a multiple of it, at least twice",
                           options.mask_size, options.window));
  }
  if (options.three_convs && options.features < 4)
    fail_usage(fmt::format("swinir: features = {} with resi_connection = \"3conv\", allowed: 4 up", options.features));
  if (!is_offered(options)) {
    fail_usage(fmt::format("swinir: scale {} and unshuffle = {} with upsampler = \"{}\", allowed: {}", options.scale,
                           options.unshuffle, upsampler,
                           "none at scale 1 and pixelshuffledirect at any, both without unshuffle; by their product 1, "
                           "2, 3, 4, 8, 16 or 32 pixelshuffle, and by 2, 4 or 8 nearest+conv"));
  }
  if (options.unshuffle > 1 && options.channels != 3)
    fail_usage("swinir: unshuffle is for three channels: other readers would take a gray network for another");
}

SwinirOptions parsed(const NetworkSpec& spec) {
  SwinirOptions options{.channels = channels(spec.color),
                        .features = int_option(spec, "features"),
                        .depths = ints_option(spec, "depths"),
                        .heads = ints_option(spec, "heads"),
                        .window = int_option(spec, "window"),
                        .mlp_features = int_option(spec, "mlp_features"),
                        .upsampler = parse_upsampler(text_option(spec, "upsampler")),
                        .three_convs = text_option(spec, "resi_connection") == "3conv",
                        .scale = spec.scale,
                        .unshuffle = int_option(spec, "unshuffle"),
                        .mask_size = int_option(spec, "img_size"),
                        .drop_path = int_option(spec, "drop_path") / 100.0};
  if (options.mlp_features == 0) options.mlp_features = 2 * options.features;
  if (options.mask_size == 0) options.mask_size = usual_mask_size(options.window);
  check(options, text_option(spec, "upsampler"));
  return options;
}

// 0 for anything but a square.
int side_of(std::int64_t square) {
  const auto side = std::llround(std::sqrt(static_cast<double>(square)));
  return side * side == square ? static_cast<int>(side) : 0;
}

std::string name_upsampler(const StateShapes& shapes) {
  if (shapes.outputs("conv_up1") > 0) return "nearest+conv";
  if (shapes.outputs("conv_before_upsample.0") > 0) return "pixelshuffle";
  return shapes.outputs("upsample.0") > 0 ? "pixelshuffledirect" : "none";
}

// Of the part after the groups; 0 when the shapes are no upsampler's.
int upscale_of(const StateShapes& shapes, const std::string& upsampler, std::int64_t channels) {
  if (upsampler == "none") return 1;
  if (upsampler == "nearest+conv") {
    int steps = 1;
    while (shapes.outputs(fmt::format("conv_up{}", steps + 1)) > 0) ++steps;
    return 1 << std::min(steps, 8);
  }
  if (upsampler == "pixelshuffledirect") return pixel_shuffle_scale(shapes.outputs("upsample.0"), channels).value_or(0);
  if (shapes.outputs("upsample.0") == 9 * kUpsamplerFeatures) return 3;
  return 1 << std::min((shapes.count_after("upsample.") + 1) / 2, 8);  // a shuffle between two convolutions
}

// 0: what window makes it.
std::string mask_option(const StateShapes& shapes, std::size_t groups, int window) {
  for (std::size_t group = 0; group < groups; ++group) {
    const std::string key = fmt::format("layers.{}.residual_group.blocks.1.attn_mask", group);
    if (shapes.dim(key, 1) != window * window || shapes.dim(key, 2) != window * window) continue;
    const int size = side_of(shapes.dim(key, 0)) * window;
    if (size > 0 && size != usual_mask_size(window)) return std::to_string(size);
  }
  return "0";
}

}  // namespace
}  // namespace swinir

std::shared_ptr<Network> make_swinir(const NetworkSpec& spec) {
  require_single_frame(spec);
  return std::make_shared<swinir::Swinir>(swinir::parsed(spec));
}

std::optional<NetworkSpec> detect_swinir(const StateShapes& shapes) {
  const int groups = shapes.count_after("layers.");
  if (groups == 0 || shapes.count_after("layers.0.residual_group.blocks.") == 0) return std::nullopt;
  const bool folded = shapes.has("conv_first.1.weight");
  const std::string first = folded ? "conv_first.1" : "conv_first";
  const std::int64_t in = shapes.inputs(first), features = shapes.outputs(first);
  const int unshuffle = folded ? pixel_shuffle_scale(in, 3).value_or(1) : 1;
  const auto color = color_of_channels(in / (unshuffle * unshuffle)).value_or(NetworkColor::rgb);
  const std::string upsampler = swinir::name_upsampler(shapes);
  const int upscale = swinir::upscale_of(shapes, upsampler, channels(color));
  const int window = swinir::side_of(shapes.dim("layers.0.residual_group.blocks.0.attn.relative_position_index", 0));
  std::vector<std::int64_t> depths, heads;
  for (int group = 0; group < groups; ++group) {
    const std::string blocks = fmt::format("layers.{}.residual_group.blocks.", group);
    depths.push_back(shapes.count_after(blocks));
    heads.push_back(shapes.dim(blocks + "0.attn.relative_position_bias_table", 1));
  }
  const std::int64_t mlp = shapes.outputs("layers.0.residual_group.blocks.0.mlp.fc1");
  return NetworkSpec{.arch = "swinir",
                     .scale = upscale % unshuffle == 0 ? upscale / unshuffle : 0,
                     .color = color,
                     .options = {{"features", std::to_string(features)},
                                 {"depths", fmt::format("{}", fmt::join(depths, ","))},
                                 {"heads", fmt::format("{}", fmt::join(heads, ","))},
                                 {"window", std::to_string(window)},
                                 {"mlp_features", std::to_string(mlp == 2 * features ? 0 : mlp)},
                                 {"upsampler", upsampler},
                                 {"resi_connection", shapes.outputs("conv_after_body.4") > 0 ? "3conv" : "1conv"},
                                 {"unshuffle", std::to_string(unshuffle)},
                                 {"img_size", swinir::mask_option(shapes, depths.size(), window)}}};
}

}  // namespace reelgrad
