// ESRGAN's generator, RRDBNet: dense blocks at input size, three of them in a residual one, then nearest upsampling and
// convolutions.
// Sources: "ESRGAN: Enhanced Super-Resolution Generative Adversarial Networks" (Wang et al., 2018), "ESRGAN+"
// (Rakotonirina and Rasoanaivo, 2020), "Real-ESRGAN" (Wang et al., 2021) for the unshuffled input, and the three key
// layouts in which weights are exchanged.
#include <fmt/format.h>
#include <torch/nn/init.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string>

#include "reelgrad/base/error.h"
#include "reelgrad/nn/architecture_tools.h"

namespace reelgrad {
namespace esrgan {
namespace {

using Tensors = std::vector<torch::Tensor>;

constexpr int kConvs = 5;  // of a dense block
constexpr int kDenseBlocks = 3;
constexpr double kResidual = 0.2;

struct EsrganOptions {
  int channels = 3;  // in and out
  int features = 64;
  int blocks = 23;
  int growth = 32;
  int scale = 4;
  int unshuffle = 1;  // by which the picture is folded into channels first
  bool plus = false;  // ESRGAN+: two more residual paths in a dense block
  std::string keys;   // "model" | "body" | "RRDB_trunk": how they begin
};

// Where the convolutions are in a file.
class Keys {
 public:
  Keys(std::string style, int blocks, int ups) : style_(std::move(style)), blocks_(blocks), ups_(ups) {}

  std::string first() const { return is_old() ? "model.0" : "conv_first"; }
  std::string dense(int block, int part, int conv) const {
    if (is_old()) return fmt::format("model.1.sub.{}.RDB{}.conv{}.0", block, part + 1, conv + 1);
    return fmt::format("{}.{}.{}{}.conv{}", style_, block, style_ == "body" ? "rdb" : "RDB", part + 1, conv + 1);
  }
  std::string plus(int block, int part) const { return fmt::format("model.1.sub.{}.RDB{}.conv1x1", block, part + 1); }
  std::string trunk() const { return pick(fmt::format("model.1.sub.{}", blocks_), "conv_body", "trunk_conv"); }
  // From 1 on. In the old layout an upsampling and an activation without parameters have a number too.
  std::string up(int index) const {
    return pick(fmt::format("model.{}", 3 * index), fmt::format("conv_up{}", index), fmt::format("upconv{}", index));
  }
  std::string last_but_one() const { return pick(fmt::format("model.{}", 3 * ups_ + 2), "conv_hr", "HRconv"); }
  std::string last() const { return is_old() ? fmt::format("model.{}", 3 * ups_ + 4) : "conv_last"; }

 private:
  bool is_old() const { return style_ == "model"; }
  std::string pick(const std::string& old, const std::string& body, const std::string& trunk) const {
    if (is_old()) return old;
    return style_ == "body" ? body : trunk;
  }

  std::string style_;
  int blocks_, ups_;
};

struct DenseBlock {
  std::array<torch::nn::Conv2d, kConvs> convs{nullptr, nullptr, nullptr, nullptr, nullptr};
  torch::nn::Conv2d plus{nullptr};

  torch::Tensor forward(const torch::Tensor& x);
};

torch::Tensor DenseBlock::forward(const torch::Tensor& x) {
  Tensors seen{x};
  for (int i = 0; i + 1 < kConvs; ++i) {
    torch::Tensor y = conv3x3_act(at::cat(seen, 1), convs[i], Activation::leaky_relu_02);
    if (!plus.is_empty() && i == 1) y = y + plus(x);
    if (!plus.is_empty() && i == 3) y = y + seen[2];
    seen.push_back(y);
  }
  return conv3x3_add(at::cat(seen, 1), convs[kConvs - 1], x, kResidual);
}

// A tenth of what He's rule says, so that many blocks in a row start near the identity.
torch::nn::Conv2d small_conv(int in, int out) {
  constexpr double kFactor = 0.1;
  const torch::NoGradGuard no_grad;
  torch::nn::Conv2d conv = same_conv(in, out);
  torch::nn::init::kaiming_normal_(conv->weight);
  conv->weight.mul_(kFactor);
  conv->bias.zero_();
  return conv;
}

class Esrgan : public Network {
 public:
  explicit Esrgan(const EsrganOptions& options);

  torch::Tensor forward(torch::Tensor input) override { return run_segments(segments_, input); }
  NetworkInfo info() const override;
  std::vector<NetworkSegment> segments() override { return segments_; }  // one a dense block and an upsampling

 private:
  int ups() const { return std::countr_zero(static_cast<unsigned>(options_.scale * options_.unshuffle)); }
  torch::nn::Conv2d add_conv(const std::string& key, torch::nn::Conv2d conv);
  DenseBlock dense_block(const Keys& keys, int block, int part);
  void add_block(const Keys& keys, int block);

  EsrganOptions options_;
  std::vector<NetworkSegment> segments_;
};

Esrgan::Esrgan(const EsrganOptions& options) : options_(options) {
  const Keys keys(options.keys, options.blocks, ups());
  const int features = options.features, fold = options.unshuffle;
  const auto first = add_conv(keys.first(), same_conv(options.channels * fold * fold, features));
  segments_.emplace_back([first, fold](const Tensors& in) {
    const torch::Tensor folded = fold == 1 ? in[0] : at::pixel_unshuffle(in[0], fold);
    return Tensors{conv3x3_act(folded, first, Activation::none)};
  });
  for (int i = 0; i < options.blocks; ++i) add_block(keys, i);

  const auto trunk = add_conv(keys.trunk(), same_conv(features, features));
  segments_.emplace_back([trunk](const Tensors& in) { return Tensors{conv3x3_add(in[0], trunk, in[1])}; });
  for (int i = 1; i <= ups(); ++i) {
    const auto conv = add_conv(keys.up(i), same_conv(features, features));
    segments_.emplace_back([conv](const Tensors& in) {
      const torch::Tensor larger = at::upsample_nearest2d(in[0], {in[0].size(2) * 2, in[0].size(3) * 2});
      return Tensors{conv3x3_act(larger, conv, Activation::leaky_relu_02)};
    });
  }
  const auto last_but_one = add_conv(keys.last_but_one(), same_conv(features, features));
  const auto last = add_conv(keys.last(), same_conv(features, options.channels));
  segments_.emplace_back([last_but_one, last](const Tensors& in) {
    return Tensors{conv3x3_act(conv3x3_act(in[0], last_but_one, Activation::leaky_relu_02), last, Activation::none)};
  });
}

torch::nn::Conv2d Esrgan::add_conv(const std::string& key, torch::nn::Conv2d conv) {
  register_at(*this, key, conv.ptr());
  return conv;
}

DenseBlock Esrgan::dense_block(const Keys& keys, int block, int part) {
  DenseBlock dense;
  const int features = options_.features, growth = options_.growth;
  for (int i = 0; i < kConvs; ++i) {
    const int out = i + 1 == kConvs ? features : growth;
    dense.convs[i] = add_conv(keys.dense(block, part, i), small_conv(features + i * growth, out));
  }
  if (options_.plus) dense.plus = add_conv(keys.plus(block, part), same_conv(features, growth, 1, /*bias=*/false));
  return dense;
}

// Between blocks {x, what the first convolution gave}; within one its input as well, last. Before the first block all
// of them are one.
void Esrgan::add_block(const Keys& keys, int block) {
  DenseBlock opening = dense_block(keys, block, 0), middle = dense_block(keys, block, 1),
             closing = dense_block(keys, block, 2);
  segments_.emplace_back([opening](const Tensors& in) mutable {
    const torch::Tensor y = opening.forward(in[0]);
    return in.size() == 1 ? Tensors{y, in[0]} : Tensors{y, in[1], in[0]};
  });
  segments_.emplace_back([middle](const Tensors& in) mutable {
    Tensors out = in;
    out[0] = middle.forward(in[0]);
    return out;
  });
  segments_.emplace_back([closing](const Tensors& in) mutable {
    return Tensors{at::add(in.back(), closing.forward(in[0]), kResidual), in[1]};
  });
}

NetworkInfo Esrgan::info() const {
  // In pixels that the first convolution sees: its own, those of the blocks, the trunk's, and less the farther up.
  double radius = 1 + kDenseBlocks * kConvs * options_.blocks + 1;
  for (int i = 1; i <= ups(); ++i) radius += 1.0 / (1 << i);
  radius += 2.0 / (1 << ups());
  const int fold = options_.unshuffle;
  return {.scale = options_.scale,
          .in_channels = options_.channels,
          .out_channels = options_.channels,
          .size_multiple = fold,
          .receptive_radius_px = static_cast<int>(std::ceil(radius)) * fold + fold - 1};
}

EsrganOptions parsed(const NetworkSpec& spec) {
  const EsrganOptions options{.channels = channels(spec.color),
                              .features = int_option(spec, "features"),
                              .blocks = int_option(spec, "blocks"),
                              .growth = int_option(spec, "growth"),
                              .scale = spec.scale,
                              .unshuffle = int_option(spec, "unshuffle"),
                              .plus = bool_option(spec, "plus"),
                              .keys = text_option(spec, "keys")};
  if (options.unshuffle == 3) fail_usage("esrgan: unshuffle = 3, allowed: 1, 2, 4");
  if (options.plus && options.keys != "model") {
    fail_usage(fmt::format("esrgan: plus has keys in the layout \"model\" only, keys = \"{}\"", options.keys));
  }
  return options;
}

// The layout of a file, by its first dense block.
std::optional<std::string> key_style(const StateShapes& shapes) {
  for (const char* style : {"model", "body", "RRDB_trunk"}) {
    if (shapes.outputs(Keys(style, 0, 0).dense(0, 0, 0)) > 0) return style;
  }
  return std::nullopt;
}

int count_ups(const StateShapes& shapes, const std::string& style) {
  constexpr int kMost = 5;
  if (style == "model") return std::clamp((shapes.count_after("model.") - 3) / 3, 0, kMost);
  int ups = 0;
  while (ups < kMost && shapes.outputs(Keys(style, 0, 0).up(ups + 1)) > 0) ++ups;
  return ups;
}

// In the old layout the trunk's convolution is counted with the blocks.
int count_blocks(const StateShapes& shapes, const std::string& style) {
  if (style != "model") return shapes.count_after(style + ".");
  const int count = shapes.count_after("model.1.sub.");
  return shapes.outputs(fmt::format("model.1.sub.{}", count - 1)) > 0 ? count - 1 : count;
}

}  // namespace
}  // namespace esrgan

std::shared_ptr<Network> make_esrgan(const NetworkSpec& spec) {
  require_single_frame(spec);
  return std::make_shared<esrgan::Esrgan>(esrgan::parsed(spec));
}

std::optional<NetworkSpec> detect_esrgan(const StateShapes& shapes) {
  const auto style = esrgan::key_style(shapes);
  if (!style) return std::nullopt;
  const int blocks = esrgan::count_blocks(shapes, *style), ups = esrgan::count_ups(shapes, *style);
  const esrgan::Keys keys(*style, blocks, ups);
  const auto color = color_of_channels(shapes.outputs(keys.last())).value_or(NetworkColor::rgb);
  const int fold = pixel_shuffle_scale(shapes.inputs(keys.first()), channels(color)).value_or(1);
  return NetworkSpec{.arch = "esrgan",
                     .scale = (1 << ups) / fold,
                     .color = color,
                     .options = {{"features", std::to_string(shapes.outputs(keys.first()))},
                                 {"blocks", std::to_string(blocks)},
                                 {"growth", std::to_string(shapes.outputs(keys.dense(0, 0, 0)))},
                                 {"unshuffle", std::to_string(fold)},
                                 {"plus", shapes.has(keys.plus(0, 0) + ".weight") ? "true" : "false"},
                                 {"keys", *style}}};
}

}  // namespace reelgrad
