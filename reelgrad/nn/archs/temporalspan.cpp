// TemporalSPAN: SPAN on five frames. Each frame has a first convolution of its own, the middle one a wide one; two more
// convolutions join them. Blocks are SPAN's, with a group norm after each convolution.
// Source: "Swift Parameter-free Attention Network for Efficient Super-Resolution" (Wan et al., 2023) for the blocks,
// and the key layout and the start of weights of traiNNer-redux, which has trained it since.
#include <fmt/format.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/normalization.h>

#include <string>

#include "reelgrad/base/error.h"
#include "reelgrad/nn/architecture_tools.h"
#include "reelgrad/nn/conv3xc.h"
#include "reelgrad/nn/norms.h"
#include "reelgrad/nn/span_body.h"

namespace reelgrad {
namespace temporalspan {
namespace {

using Tensors = std::vector<torch::Tensor>;

constexpr int kWindow = 5;
constexpr int kGroups = 8;  // of a norm

struct TemporalSpanOptions {
  int channels = 3;  // in and out
  int features = 48;
  int frame_features = 12;  // of each frame beside the middle one
  int scale = 2;
};

class BlockImpl : public torch::nn::Module {
 public:
  explicit BlockImpl(int features);

  // {output, what came out of the first convolution, its norm and its activation}
  Tensors forward(const torch::Tensor& x);

 private:
  Conv3xc first_, second_, third_;
  torch::nn::GroupNorm first_norm_, second_norm_, third_norm_;
};
TORCH_MODULE(Block);

BlockImpl::BlockImpl(int features)
    : first_(register_module("c1_r", Conv3xc(features, features))),
      second_(register_module("c2_r", Conv3xc(features, features))),
      third_(register_module("c3_r", Conv3xc(features, features))),
      first_norm_(register_module("norm1", torch::nn::GroupNorm(kGroups, features))),
      second_norm_(register_module("norm2", torch::nn::GroupNorm(kGroups, features))),
      third_norm_(register_module("norm3", torch::nn::GroupNorm(kGroups, features))) {}

Tensors BlockImpl::forward(const torch::Tensor& x) {
  const torch::Tensor inner = at::silu(group_norm(first_(x), first_norm_));
  const torch::Tensor y = group_norm(third_(at::silu(group_norm(second_(inner), second_norm_))), third_norm_);
  return {weighed_by_itself(y, x), inner};
}

// The pixels that a shuffle makes of one begin as the same: no pattern to unlearn.
void init_for_shuffle(const torch::nn::Conv2dImpl& conv, int scale) {
  const torch::NoGradGuard no_grad;
  const std::int64_t pixels = scale * scale;
  const torch::Tensor one = torch::empty_like(conv.weight.narrow(0, 0, conv.weight.size(0) / pixels));
  torch::nn::init::kaiming_normal_(one);
  conv.weight.copy_(one.repeat_interleave(pixels, 0));
  conv.bias.zero_();
}

class TemporalSpan : public Network {
 public:
  explicit TemporalSpan(const TemporalSpanOptions& options);

  torch::Tensor forward(torch::Tensor input) override { return run_segments(segments_, input); }
  NetworkInfo info() const override;
  std::vector<NetworkSegment> segments() override { return segments_; }  // one a block
  void train(bool on = true) override;
  void derive(NamedTensors& state) const override { derive_conv3xc(*this, state); }
  // No window_stages(): a frame's own convolution is a hundredth of the work, and reads less than its result takes.

 private:
  Conv3xc add_conv(const std::string& key, int in, int out);
  torch::Tensor joined_frames(const torch::Tensor& clip);

  TemporalSpanOptions options_;
  std::vector<Conv3xc> frame_convs_;  // one a frame, in their order
  Conv3xc first_join_{nullptr}, second_join_{nullptr};
  std::vector<NetworkSegment> segments_;
};

TemporalSpan::TemporalSpan(const TemporalSpanOptions& options) : options_(options) {
  const int features = options.features;
  const Conv3xc middle = add_conv("center_conv", options.channels, features);
  for (int i = 0; i < kWindow - 1; ++i) {
    if (i == kWindow / 2) frame_convs_.push_back(middle);
    frame_convs_.push_back(add_conv(fmt::format("history_convs.{}", i), options.channels, options.frame_features));
  }
  first_join_ = add_conv("fusion_conv.0", features + options.frame_features * (kWindow - 1), features);
  second_join_ = add_conv("fusion_conv.1", features, features);
  const SpanBody body(*this, add_span_blocks<Block>(*this, features), features, options.channels, options.scale);
  init_for_shuffle(*body.upsampler(), options.scale);

  segments_.emplace_back([this](const Tensors& in) { return Tensors{joined_frames(in[0])}; });
  for (auto& segment : body.segments([this](const torch::Tensor& x) { return second_join_(x); })) {
    segments_.push_back(std::move(segment));
  }
}

Conv3xc TemporalSpan::add_conv(const std::string& key, int in, int out) {
  const Conv3xc conv(in, out);
  register_at(*this, key, conv.ptr());
  return conv;
}

torch::Tensor TemporalSpan::joined_frames(const torch::Tensor& clip) {
  Tensors frames;
  for (int i = 0; i < kWindow; ++i) frames.push_back(frame_convs_[i](clip.select(1, i)));
  return first_join_(at::cat(frames, 1));
}

void TemporalSpan::train(bool on) {
  Network::train(on);
  if (!on) refresh_conv3xc(*this);
}

NetworkInfo TemporalSpan::info() const {
  return {.scale = options_.scale,
          .in_channels = options_.channels,
          .out_channels = options_.channels,
          .window = kWindow,
          .receptive_radius_px = 3 * kSpanBlocks + 5,
          .whole_picture = true};
}

}  // namespace
}  // namespace temporalspan

std::shared_ptr<Network> make_temporalspan(const NetworkSpec& spec) {
  require_window(spec, temporalspan::kWindow);
  const int features = int_option(spec, "features");
  if (features % temporalspan::kGroups != 0) {
    fail_usage(fmt::format("temporalspan: model.features = {}, allowed: multiples of {}, the groups of its norms",
                           features, temporalspan::kGroups));
  }
  return std::make_shared<temporalspan::TemporalSpan>(
      temporalspan::TemporalSpanOptions{.channels = channels(spec.color),
                                        .features = features,
                                        .frame_features = int_option(spec, "frame_features"),
                                        .scale = spec.scale});
}

std::optional<NetworkSpec> detect_temporalspan(const StateShapes& shapes) {
  if (shapes.count_after("history_convs.") == 0) return std::nullopt;
  const auto color = color_of_channels(shapes.inputs("center_conv.sk")).value_or(NetworkColor::rgb);
  return NetworkSpec{.arch = "temporalspan",
                     .scale = pixel_shuffle_scale(shapes.outputs("upsampler.0"), channels(color)).value_or(0),
                     .window = temporalspan::kWindow,
                     .color = color,
                     .options = {{"features", std::to_string(shapes.outputs("center_conv.sk"))},
                                 {"frame_features", std::to_string(shapes.outputs("history_convs.0.sk"))}}};
}

}  // namespace reelgrad
