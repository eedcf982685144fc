// DRUNet: a U of four levels of residual blocks without biases, with a noise level map beside the picture.
// Source: "Plug-and-Play Image Restoration with Deep Denoiser Prior" (Zhang et al., 2021), and the key layout and the
// start of weights of its authors' implementation.
#include <fmt/format.h>

#include <array>
#include <functional>
#include <string>

#include "reelgrad/base/error.h"
#include "reelgrad/nn/architecture_tools.h"

namespace reelgrad {
namespace drunet {
namespace {

using Tensors = std::vector<torch::Tensor>;

constexpr int kLevels = 4;
constexpr int kMultiple = 1 << (kLevels - 1);

enum class Down { strided, average };
enum class Up { transposed, nearest, shuffle };

struct DrunetOptions {
  int channels = 3;  // in and out
  std::array<int, kLevels> features{64, 128, 256, 512};
  int blocks = 4;  // a level
  Down down = Down::strided;
  Up up = Up::transposed;
  bool noise_map = true;
  int sigma = 15;
};

class Drunet : public Network {
 public:
  explicit Drunet(const DrunetOptions& options);

  torch::Tensor forward(torch::Tensor input) override { return run_segments(segments_, input); }
  NetworkInfo info() const override;
  std::vector<NetworkSegment> segments() override { return segments_; }  // one a block and a change of level

 private:
  torch::nn::Conv2d add_conv(const std::string& key, int in, int out);
  torch::nn::Conv2d add_strided(const std::string& key, int in, int out);
  torch::nn::ConvTranspose2d add_transposed(const std::string& key, int in, int out);
  void add_blocks(const std::string& level, int features, int first_number, bool keeps_input);
  void add_down(int level);
  void add_up(int level);

  DrunetOptions options_;
  std::vector<NetworkSegment> segments_;
};

Drunet::Drunet(const DrunetOptions& options) : options_(options) {
  const auto head = add_conv("m_head", options.channels + (options.noise_map ? 1 : 0), options.features[0]);
  segments_.emplace_back([this, head](const Tensors& in) {
    const torch::Tensor x = options_.noise_map ? with_noise_map(in[0], options_.channels, options_.sigma) : in[0];
    return Tensors{conv3x3_act(x, head, Activation::none)};
  });
  for (int level = 0; level + 1 < kLevels; ++level) add_down(level);
  add_blocks("m_body", options.features[kLevels - 1], 0, /*keeps_input=*/true);
  for (int level = kLevels - 2; level >= 0; --level) add_up(level);
  const auto tail = add_conv("m_tail", options.features[0], options.channels);
  segments_.emplace_back(
      [tail](const Tensors& in) { return Tensors{conv3x3_act(in[0] + in[1], tail, Activation::none)}; });
  constexpr double kGain = 0.2;
  init_orthogonal(*this, kGain);
}

torch::nn::Conv2d Drunet::add_conv(const std::string& key, int in, int out) {
  const torch::nn::Conv2d conv = same_conv(in, out, 3, /*bias=*/false);
  register_at(*this, key, conv.ptr());
  return conv;
}

torch::nn::Conv2d Drunet::add_strided(const std::string& key, int in, int out) {
  const torch::nn::Conv2d conv(torch::nn::Conv2dOptions(in, out, 2).stride(2).bias(false));
  register_at(*this, key, conv.ptr());
  return conv;
}

torch::nn::ConvTranspose2d Drunet::add_transposed(const std::string& key, int in, int out) {
  const torch::nn::ConvTranspose2d conv(torch::nn::ConvTranspose2dOptions(in, out, 2).stride(2).bias(false));
  register_at(*this, key, conv.ptr());
  return conv;
}

// Segments pass {x, the inputs of this level and of those above it, nearest first}. On the way down, a level's first
// block puts its input there.
void Drunet::add_blocks(const std::string& level, int features, int first_number, bool keeps_input) {
  for (int i = 0; i < options_.blocks; ++i) {
    const std::string key = fmt::format("{}.{}.res.", level, first_number + i);
    const auto first = add_conv(key + "0", features, features), second = add_conv(key + "2", features, features);
    const std::size_t passed = i == 0 && keeps_input ? 0 : 1;
    segments_.emplace_back([first, second, passed](const Tensors& in) {
      Tensors out{conv3x3_add(conv3x3_act(in[0], first, Activation::relu), second, in[0])};
      out.insert(out.end(), in.begin() + passed, in.end());
      return out;
    });
  }
}

void Drunet::add_down(int level) {
  const std::string key = fmt::format("m_down{}", level + 1);
  const int in = options_.features[level], out = options_.features[level + 1];
  add_blocks(key, in, 0, /*keeps_input=*/true);
  std::function<torch::Tensor(const torch::Tensor&)> down;
  if (options_.down == Down::strided) {
    down = [conv = add_strided(fmt::format("{}.{}", key, options_.blocks), in, out)](const torch::Tensor& x) mutable {
      return conv(x);
    };
  } else {
    down = [conv = add_conv(fmt::format("{}.{}", key, options_.blocks + 1), in, out)](const torch::Tensor& x) {
      return conv3x3_act(at::avg_pool2d(x, 2), conv, Activation::none);
    };
  }
  segments_.emplace_back([down](const Tensors& in) {
    Tensors result = in;
    result[0] = down(in[0]);
    return result;
  });
}

void Drunet::add_up(int level) {
  const std::string key = fmt::format("m_up{}", level + 1);
  const int in = options_.features[level + 1], out = options_.features[level];
  std::function<torch::Tensor(const torch::Tensor&)> up;
  switch (options_.up) {
    case Up::transposed:
      up = [conv = add_transposed(key + ".0", in, out)](const torch::Tensor& x) mutable { return conv(x); };
      break;
    case Up::nearest:
      up = [conv = add_conv(key + ".1", in, out)](const torch::Tensor& x) {
        return conv3x3_act(at::upsample_nearest2d(x, {x.size(2) * 2, x.size(3) * 2}), conv, Activation::none);
      };
      break;
    case Up::shuffle:
      up = [conv = add_conv(key + ".0", in, out * 4)](const torch::Tensor& x) {
        return at::pixel_shuffle(conv3x3_act(x, conv, Activation::none), 2);
      };
      break;
  }
  segments_.emplace_back([up](const Tensors& in) {
    Tensors result(in.begin() + 1, in.end());
    result[0] = up(in[0] + in[1]);
    return result;
  });
  add_blocks(key, out, options_.up == Up::transposed ? 1 : 2, /*keeps_input=*/false);
}

NetworkInfo Drunet::info() const {
  // Head and tail, and where a pixel, and what it reaches, lie in cells of the lowest level.
  int radius = 2 + 2 * (kMultiple - 1);
  for (int level = 0; level < kLevels; ++level) {
    const int convs = 2 * options_.blocks * (level + 1 < kLevels ? 2 : 1);
    const bool below = level > 0, above = level + 1 < kLevels;
    const int down = below && options_.down == Down::average ? 1 : 0;
    const int up = (above && options_.up == Up::nearest) || (below && options_.up == Up::shuffle) ? 1 : 0;
    radius += (convs + down + up) << level;
  }
  return {.in_channels = options_.channels,
          .out_channels = options_.channels,
          .size_multiple = kMultiple,
          .receptive_radius_px = radius,
          .noise_level = options_.noise_map};
}

DrunetOptions parsed(const NetworkSpec& spec) {
  const std::string &down = text_option(spec, "downsample"), &up = text_option(spec, "upsample");
  return {.channels = channels(spec.color),
          .features = {int_option(spec, "features"), int_option(spec, "features2"), int_option(spec, "features3"),
                       int_option(spec, "features4")},
          .blocks = int_option(spec, "blocks"),
          .down = down == "strideconv" ? Down::strided : Down::average,
          .up = up == "convtranspose" ? Up::transposed : (up == "upconv" ? Up::nearest : Up::shuffle),
          .noise_map = bool_option(spec, "noise_map"),
          .sigma = int_option(spec, "sigma")};
}

std::string upsampling(const StateShapes& shapes) {
  if (shapes.has("m_up3.1.weight")) return "upconv";
  return shapes.dim("m_up3.0.weight", 2) == 3 ? "pixelshuffle" : "convtranspose";
}

}  // namespace
}  // namespace drunet

std::shared_ptr<Network> make_drunet(const NetworkSpec& spec) {
  require_single_frame(spec);
  return std::make_shared<drunet::Drunet>(drunet::parsed(spec));
}

std::optional<NetworkSpec> detect_drunet(const StateShapes& shapes) {
  const int blocks = shapes.count_after("m_body.");
  if (blocks == 0) return std::nullopt;
  const auto [color, noise_map] = noise_channels(shapes.inputs("m_head"), shapes.outputs("m_tail"));
  const auto features = [&](const char* layer) { return std::to_string(shapes.outputs(layer)); };
  const bool strided = shapes.has(fmt::format("m_down1.{}.weight", blocks));
  return NetworkSpec{.arch = "drunet",
                     .scale = 1,
                     .color = color,
                     .options = {{"features", features("m_head")},
                                 {"features2", features("m_down2.0.res.0")},
                                 {"features3", features("m_down3.0.res.0")},
                                 {"features4", features("m_body.0.res.0")},
                                 {"blocks", std::to_string(blocks)},
                                 {"downsample", strided ? "strideconv" : "avgpool"},
                                 {"upsample", drunet::upsampling(shapes)},
                                 {"noise_map", noise_map}}};
}

}  // namespace reelgrad
