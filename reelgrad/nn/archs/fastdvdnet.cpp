// FastDVDnet: a small U-Net removes noise from three frames in a row; a first one is run on each three of five frames,
// a second one on what comes out. The noise level map lies beside each frame. Source: "FastDVDnet: Towards Real-Time
// Deep Video Denoising Without Flow Estimation" (Tassano et al., 2020), and the key layout and the start of weights of
// its authors' implementation.
#include <fmt/format.h>
#include <torch/nn/init.h>

#include <functional>
#include <string>
#include <utility>

#include "reelgrad/nn/architecture_tools.h"
#include "reelgrad/nn/norms.h"

namespace reelgrad {
namespace fastdvdnet {
namespace {

using Tensors = std::vector<torch::Tensor>;
using Step = std::function<torch::Tensor(const torch::Tensor&)>;

constexpr int kWindow = 5;
constexpr int kFrames = 3;          // of a U-Net
constexpr int kFrameFeatures = 30;  // of a frame in a U-Net's first layer
constexpr int kMultiple = 4;        // of two halvings
constexpr int kRadius = 40;         // of a U-Net

struct FastDvdnetOptions {
  int channels = 3;  // in and out
  int features = 32;
  int sigma = 25;
};

// The levels of one of the two.
struct UNet {
  Step in, down1, down2, up2, up1, out;
};

class FastDvdnet : public Network {
 public:
  explicit FastDvdnet(const FastDvdnetOptions& options);

  torch::Tensor forward(torch::Tensor input) override { return run_segments(segments_, input); }
  NetworkInfo info() const override;
  std::vector<NetworkSegment> segments() override { return segments_; }  // one a level of a U-Net
  std::optional<WindowStages> window_stages() override;                  // one a U-Net

 private:
  Step add_conv(const std::string& key, int in, int out);
  Step add_normed(const std::string& conv_key, const std::string& norm_key, const torch::nn::Conv2d& conv);
  Step add_pair(const std::string& key, int in, int out);
  Step add_first(const std::string& key, int out);
  Step add_down(const std::string& key, int in, int out);
  Step add_up(const std::string& key, int in, int out);
  UNet add_unet(const std::string& key);
  void add_levels(const UNet& unet);
  void add_first_stage(const UNet& unet, int first_frame);
  void add_second_stage(const UNet& unet);

  torch::Tensor with_noise_maps(const torch::Tensor& clip) const;
  torch::Tensor picture_at(const torch::Tensor& clip, int frame) const;
  torch::Tensor map_at(const torch::Tensor& clip, int frame) const;

  FastDvdnetOptions options_;
  std::vector<NetworkSegment> segments_, first_stage_, second_stage_;
};

Step chain(std::vector<Step> steps) {
  return [steps = std::move(steps)](const torch::Tensor& x) {
    torch::Tensor y = x;
    for (const Step& step : steps) y = step(y);
    return y;
  };
}

// Segments pass {x, the inputs of the levels above it, nearest first, what came out before, latest first, the clip with
// its noise maps}.
FastDvdnet::FastDvdnet(const FastDvdnetOptions& options) : options_(options) {
  const UNet first = add_unet("temp1"), second = add_unet("temp2");
  for (const auto& module : modules(/*include_self=*/false)) {
    if (auto* conv = module->as<torch::nn::Conv2dImpl>()) torch::nn::init::kaiming_normal_(conv->weight);
  }
  segments_.emplace_back([this](const Tensors& in) { return Tensors{with_noise_maps(in[0])}; });
  // One after another, not as a batch: their norms are measured apart.
  for (int frame = 0; frame + kFrames <= kWindow; ++frame) {
    add_first_stage(first, frame);
    if (frame == 0) first_stage_ = segments_;
  }
  const auto before = static_cast<std::ptrdiff_t>(segments_.size());
  add_second_stage(second);
  second_stage_.assign(segments_.begin() + before, segments_.end());
}

std::optional<WindowStages> FastDvdnet::window_stages() {
  return WindowStages{.frames = kFrames,
                      .first = [this](const torch::Tensor& part) { return run_segments(first_stage_, part); },
                      .second =
                          [this](const Tensors& parts, const torch::Tensor& window) {
                            Tensors tensors(parts.rbegin(), parts.rend());
                            tensors.push_back(with_noise_maps(window));
                            return run_segments(second_stage_, std::move(tensors));
                          }};
}

Step FastDvdnet::add_conv(const std::string& key, int in, int out) {
  const torch::nn::Conv2d conv = same_conv(in, out);
  register_at(*this, key, conv.ptr());
  return [conv](const torch::Tensor& x) { return conv3x3_act(x, conv, Activation::none); };
}

Step FastDvdnet::add_normed(const std::string& conv_key, const std::string& norm_key, const torch::nn::Conv2d& conv) {
  const torch::nn::BatchNorm2d norm(conv->options.out_channels());
  register_at(*this, conv_key, conv.ptr());
  register_at(*this, norm_key, norm.ptr());
  return [conv, norm](const torch::Tensor& x) { return conv_norm_relu(x, conv, norm); };
}

Step FastDvdnet::add_pair(const std::string& key, int in, int out) {
  return chain({add_normed(key + ".convblock.0", key + ".convblock.1", same_conv(in, out)),
                add_normed(key + ".convblock.3", key + ".convblock.4", same_conv(out, out))});
}

Step FastDvdnet::add_first(const std::string& key, int out) {
  constexpr int kInner = kFrames * kFrameFeatures;
  const int in = kFrames * (options_.channels + 1);
  const torch::nn::Conv2d each_frame(torch::nn::Conv2dOptions(in, kInner, 3).padding(1).groups(kFrames));
  return chain({add_normed(key + ".convblock.0", key + ".convblock.1", each_frame),
                add_normed(key + ".convblock.3", key + ".convblock.4", same_conv(kInner, out))});
}

Step FastDvdnet::add_down(const std::string& key, int in, int out) {
  const torch::nn::Conv2d halve(torch::nn::Conv2dOptions(in, out, 3).padding(1).stride(2));
  return chain(
      {add_normed(key + ".convblock.0", key + ".convblock.1", halve), add_pair(key + ".convblock.3", out, out)});
}

Step FastDvdnet::add_up(const std::string& key, int in, int out) {
  return chain({add_pair(key + ".convblock.0", in, in), add_conv(key + ".convblock.1", in, out * 4),
                [](const torch::Tensor& x) { return at::pixel_shuffle(x, 2); }});
}

UNet FastDvdnet::add_unet(const std::string& key) {
  const int features = options_.features;
  return {.in = add_first(key + ".inc", features),
          .down1 = add_down(key + ".downc0", features, features * 2),
          .down2 = add_down(key + ".downc1", features * 2, features * 4),
          .up2 = add_up(key + ".upc2", features * 4, features * 2),
          .up1 = add_up(key + ".upc1", features * 2, features),
          .out = chain({add_normed(key + ".outc.convblock.0", key + ".outc.convblock.1", same_conv(features, features)),
                        add_conv(key + ".outc.convblock.3", features, options_.channels)})};
}

// From {what the first layer gave, …} to {what up1 gave, what the first layer gave, …}.
void FastDvdnet::add_levels(const UNet& unet) {
  for (const Step& down : {unet.down1, unet.down2}) {
    segments_.emplace_back([down](const Tensors& in) {
      Tensors out{down(in[0])};
      out.insert(out.end(), in.begin(), in.end());
      return out;
    });
  }
  segments_.emplace_back([up = unet.up2](const Tensors& in) {
    Tensors out = in;
    out[0] = up(in[0]);
    return out;
  });
  segments_.emplace_back([up = unet.up1](const Tensors& in) {
    Tensors out(in.begin() + 1, in.end());
    out[0] = up(in[0] + in[1]);
    return out;
  });
}

// From {what came out before, latest first, the clip} to the same with one more.
void FastDvdnet::add_first_stage(const UNet& unet, int first_frame) {
  segments_.emplace_back([step = unet.in, first_frame](const Tensors& in) {
    Tensors out{step(in.back().narrow(1, first_frame, kFrames).flatten(1, 2))};
    out.insert(out.end(), in.begin(), in.end());
    return out;
  });
  add_levels(unet);
  segments_.emplace_back([this, step = unet.out, first_frame](const Tensors& in) {
    Tensors out(in.begin() + 1, in.end());
    out[0] = picture_at(in.back(), first_frame + kFrames / 2) - step(in[0] + in[1]);
    return out;
  });
}

// From {what came out before, latest first, the clip} to the output.
void FastDvdnet::add_second_stage(const UNet& unet) {
  segments_.emplace_back([this, step = unet.in](const Tensors& in) {
    const torch::Tensor& clip = in.back();
    Tensors frames;
    for (int i = 0; i < kFrames; ++i) {
      frames.push_back(in[kFrames - 1 - i]);
      frames.push_back(map_at(clip, i + (kWindow - kFrames) / 2));
    }
    return Tensors{step(at::cat(frames, 1)), in[kFrames / 2]};
  });
  add_levels(unet);
  segments_.emplace_back([step = unet.out](const Tensors& in) { return Tensors{in[2] - step(in[0] + in[1])}; });
}

torch::Tensor FastDvdnet::with_noise_maps(const torch::Tensor& clip) const {
  return with_noise_map(clip.flatten(0, 1), options_.channels, options_.sigma).unflatten(0, {-1, clip.size(1)});
}

torch::Tensor FastDvdnet::picture_at(const torch::Tensor& clip, int frame) const {
  return clip.select(1, frame).narrow(1, 0, options_.channels);
}

torch::Tensor FastDvdnet::map_at(const torch::Tensor& clip, int frame) const {
  return clip.select(1, frame).narrow(1, options_.channels, 1);
}

NetworkInfo FastDvdnet::info() const {
  return {.in_channels = options_.channels,
          .out_channels = options_.channels,
          .window = kWindow,
          .size_multiple = kMultiple,
          .receptive_radius_px = 2 * kRadius,
          .noise_level = true};
}

}  // namespace
}  // namespace fastdvdnet

std::shared_ptr<Network> make_fastdvdnet(const NetworkSpec& spec) {
  require_window(spec, fastdvdnet::kWindow);
  return std::make_shared<fastdvdnet::FastDvdnet>(fastdvdnet::FastDvdnetOptions{
      .channels = channels(spec.color), .features = int_option(spec, "features"), .sigma = int_option(spec, "sigma")});
}

std::optional<NetworkSpec> detect_fastdvdnet(const StateShapes& shapes) {
  if (shapes.count_after("temp1.inc.convblock.") == 0) return std::nullopt;
  const std::int64_t in = shapes.inputs("temp1.inc.convblock.0");  // a frame and its noise level
  return NetworkSpec{.arch = "fastdvdnet",
                     .scale = 1,
                     .window = fastdvdnet::kWindow,
                     .color = color_of_channels(in - 1).value_or(NetworkColor::rgb),
                     .options = {{"features", std::to_string(shapes.outputs("temp1.inc.convblock.3"))}}};
}

}  // namespace reelgrad
