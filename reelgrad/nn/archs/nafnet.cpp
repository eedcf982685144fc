// NAFNet: a U of blocks without activations: what would be one is a product of two halves of the channels.
// Source: "Simple Baselines for Image Restoration" (Chen et al., 2022), and the key layout of its authors' weights.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>

#include "reelgrad/base/error.h"
#include "reelgrad/nn/architecture_tools.h"

namespace reelgrad {
namespace nafnet {
namespace {

using Tensors = std::vector<torch::Tensor>;

struct NafnetOptions {
  int channels = 3;                        // in and out
  int width = 32;                          // features of the first level; twice as many on each below
  std::vector<int> encoders{1, 1, 1, 28};  // blocks of each level, on the way down
  int middle = 1;                          // blocks of the lowest level
  std::vector<int> decoders{1, 1, 1, 1};   // on the way up, from below

  std::int64_t multiple() const { return std::int64_t{1} << encoders.size(); }
};

// Over the channels of each pixel.
class LayerNormImpl : public torch::nn::Module {
 public:
  explicit LayerNormImpl(int features)
      : weight_(register_parameter("weight", torch::ones({features}))),
        bias_(register_parameter("bias", torch::zeros({features}))) {}

  torch::Tensor forward(const torch::Tensor& x) const {
    constexpr double kEpsilon = 1e-6;
    return at::layer_norm(x.permute({0, 2, 3, 1}), {x.size(1)}, weight_, bias_, kEpsilon).permute({0, 3, 1, 2});
  }

 private:
  torch::Tensor weight_, bias_;
};
TORCH_MODULE(LayerNorm);

torch::Tensor product_of_halves(const torch::Tensor& x) {
  const std::int64_t half = x.size(1) / 2;
  return x.narrow(1, 0, half) * x.narrow(1, half, half);
}

class BlockImpl : public torch::nn::Module {
 public:
  explicit BlockImpl(int features);

  torch::Tensor forward(const torch::Tensor& x);

 private:
  LayerNorm before_, before_mlp_;
  torch::nn::Conv2d wider_, around_, attention_, narrower_, mlp_wider_, mlp_narrower_;
  torch::Tensor weight_, mlp_weight_;  // of what is added to the input
};
TORCH_MODULE(Block);

BlockImpl::BlockImpl(int features)
    : before_(features),
      before_mlp_(features),
      wider_(same_conv(features, 2 * features, 1)),
      around_(torch::nn::Conv2dOptions(2 * features, 2 * features, 3).padding(1).groups(2 * features)),
      attention_(same_conv(features, features, 1)),
      narrower_(same_conv(features, features, 1)),
      mlp_wider_(same_conv(features, 2 * features, 1)),
      mlp_narrower_(same_conv(features, features, 1)) {
  weight_ = register_parameter("beta", torch::zeros({1, features, 1, 1}));
  mlp_weight_ = register_parameter("gamma", torch::zeros({1, features, 1, 1}));
  register_module("norm1", before_);
  register_module("conv1", wider_);
  register_module("conv2", around_);
  register_at(*this, "sca.1", attention_.ptr());
  register_module("conv3", narrower_);
  register_module("norm2", before_mlp_);
  register_module("conv4", mlp_wider_);
  register_module("conv5", mlp_narrower_);
}

torch::Tensor BlockImpl::forward(const torch::Tensor& x) {
  const torch::Tensor gated = product_of_halves(around_(wider_(before_(x))));
  const torch::Tensor attention = attention_(gated.mean({2, 3}, /*keepdim=*/true));
  const torch::Tensor y = at::addcmul(x, narrower_(gated * attention), weight_);
  return at::addcmul(y, mlp_narrower_(product_of_halves(mlp_wider_(before_mlp_(y)))), mlp_weight_);
}

class Nafnet : public Network {
 public:
  explicit Nafnet(const NafnetOptions& options);

  torch::Tensor forward(torch::Tensor input) override { return run_segments(segments_, input); }
  NetworkInfo info() const override;
  std::vector<NetworkSegment> segments() override { return segments_; }  // one a block and a change of level

 private:
  void add_blocks(const std::string& level, int count, int features);
  void add_down(std::size_t level, int features);
  void add_up(std::size_t step, int features);

  NafnetOptions options_;
  std::vector<NetworkSegment> segments_;
};

// With zeros at the bottom and right.
torch::Tensor padded_to_multiple(const torch::Tensor& x, std::int64_t multiple) {
  const auto missing = [&](int side) { return (multiple - x.size(side) % multiple) % multiple; };
  const std::int64_t rows = missing(2), columns = missing(3);
  return rows == 0 && columns == 0 ? x : at::constant_pad_nd(x, {0, columns, 0, rows});
}

// Segments pass {x, what waits for the way up, lowest level first, the input}.
Nafnet::Nafnet(const NafnetOptions& options) : options_(options) {
  const torch::nn::Conv2d intro = register_module("intro", same_conv(options.channels, options.width));
  const torch::nn::Conv2d ending = register_module("ending", same_conv(options.width, options.channels));
  const std::int64_t multiple = options.multiple();
  segments_.emplace_back([intro, multiple](const Tensors& in) {
    return Tensors{conv3x3_act(padded_to_multiple(in[0], multiple), intro, Activation::none), in[0]};
  });
  int features = options.width;
  for (std::size_t level = 0; level < options.encoders.size(); ++level, features *= 2) {
    add_blocks(fmt::format("encoders.{}", level), options.encoders[level], features);
    add_down(level, features);
  }
  add_blocks("middle_blks", options.middle, features);
  for (std::size_t step = 0; step < options.decoders.size(); ++step) {
    add_up(step, features);
    features /= 2;
    add_blocks(fmt::format("decoders.{}", step), options.decoders[step], features);
  }
  segments_.emplace_back([ending, multiple](const Tensors& in) {
    const torch::Tensor& input = in[1];
    const torch::Tensor y = conv3x3_act(in[0], ending, Activation::none);
    return Tensors{(y + padded_to_multiple(input, multiple)).narrow(2, 0, input.size(2)).narrow(3, 0, input.size(3))};
  });
}

void Nafnet::add_blocks(const std::string& level, int count, int features) {
  for (int i = 0; i < count; ++i) {
    Block block(features);
    register_at(*this, fmt::format("{}.{}", level, i), block.ptr());
    segments_.emplace_back([block](const Tensors& in) mutable {
      Tensors out = in;
      out[0] = block(in[0]);
      return out;
    });
  }
}

void Nafnet::add_down(std::size_t level, int features) {
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(features, 2 * features, 2).stride(2));
  register_at(*this, fmt::format("downs.{}", level), conv.ptr());
  segments_.emplace_back([conv](const Tensors& in) mutable {
    Tensors out{conv(in[0])};
    out.insert(out.end(), in.begin(), in.end());
    return out;
  });
}

void Nafnet::add_up(std::size_t step, int features) {
  torch::nn::Conv2d conv = same_conv(features, 2 * features, 1, /*bias=*/false);
  register_at(*this, fmt::format("ups.{}.0", step), conv.ptr());
  segments_.emplace_back([conv](const Tensors& in) mutable {
    Tensors out(in.begin() + 1, in.end());
    out[0] = at::pixel_shuffle(conv(in[0]), 2) + in[1];
    return out;
  });
}

NetworkInfo Nafnet::info() const {
  // One pixel of its level a block, and where a pixel lies in a cell of the lowest level.
  const int levels = static_cast<int>(options_.encoders.size());
  int radius = 2 + (1 << levels) - 1 + (options_.middle << levels);
  for (int level = 0; level < levels; ++level)
    radius += (options_.encoders[level] + options_.decoders[levels - 1 - level]) << level;
  return {.in_channels = options_.channels,
          .out_channels = options_.channels,
          .receptive_radius_px = radius,
          .whole_picture = true};
}

NafnetOptions parsed(const NetworkSpec& spec) {
  NafnetOptions options{.channels = channels(spec.color),
                        .width = int_option(spec, "width"),
                        .encoders = ints_option(spec, "enc_blk_nums"),
                        .middle = int_option(spec, "middle_blk_num"),
                        .decoders = ints_option(spec, "dec_blk_nums")};
  constexpr std::size_t kMostLevels = 8;
  if (options.encoders.size() != options.decoders.size() || options.encoders.size() > kMostLevels) {
    fail_usage(fmt::format("nafnet: enc_blk_nums of {} levels and dec_blk_nums of {}, allowed: as many, up to {}",
                           options.encoders.size(), options.decoders.size(), kMostLevels));
  }
  return options;
}

std::vector<int> count_blocks(const StateShapes& shapes, const std::string& list) {
  std::vector<int> counts;
  for (int level = 0; level < shapes.count_after(list); ++level)
    counts.push_back(shapes.count_after(fmt::format("{}{}.", list, level)));
  return counts;
}

}  // namespace
}  // namespace nafnet

std::shared_ptr<Network> make_nafnet(const NetworkSpec& spec) {
  require_single_frame(spec);
  return std::make_shared<nafnet::Nafnet>(nafnet::parsed(spec));
}

std::optional<NetworkSpec> detect_nafnet(const StateShapes& shapes) {
  const int middle = shapes.count_after("middle_blks.");
  if (middle == 0) return std::nullopt;
  const auto counts = [&](const char* list) {
    return fmt::format("{}", fmt::join(nafnet::count_blocks(shapes, list), ","));
  };
  return NetworkSpec{.arch = "nafnet",
                     .scale = 1,
                     .color = color_of_channels(shapes.inputs("intro")).value_or(NetworkColor::rgb),
                     .options = {{"width", std::to_string(shapes.outputs("intro"))},
                                 {"enc_blk_nums", counts("encoders.")},
                                 {"middle_blk_num", std::to_string(middle)},
                                 {"dec_blk_nums", counts("decoders.")}}};
}

}  // namespace reelgrad
