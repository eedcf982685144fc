// ESRGAN's discriminator in the style of VGG, which judges a whole crop of one size. Source: "ESRGAN: Enhanced
// Super-Resolution Generative Adversarial Networks" (Wang et al., 2018); names and shapes are those of BasicSR's
// VGGStyleDiscriminator, which takes 128 or 256 pixels a side: conv0_0, conv0_1, bn0_1, …, linear1, linear2. Other
// multiples of 32 follow the same rule.
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "reelgrad/base/error.h"
#include "reelgrad/nn/discriminators.h"

namespace reelgrad {
namespace patch_vgg {
namespace {

using Tensors = std::vector<torch::Tensor>;

constexpr int kHidden = 100;

int levels_of(int size_px) {
  return size_px >= 256 ? 6 : 5;
}

// Times the first level's features.
int widening(int level) {
  return std::min(1 << level, 8);
}

struct Level {
  std::shared_ptr<SpectralConv2d> conv;
  torch::nn::BatchNorm2d norm{nullptr};  // none after the first
};

class PatchVgg : public Discriminator {
 public:
  explicit PatchVgg(const DiscriminatorOptions& options) : size_px_(options.size_px) {
    const int levels = levels_of(size_px_), f = options.features;
    int channels = options.channels;
    for (int level = 0; level < levels; ++level) {
      const int out = f * widening(level);
      add(level, 0,
          {.in = channels,
           .out = out,
           .kernel = 3,
           .padding = 1,
           .bias = level == 0,
           .second_derivatives = options.second_derivatives});
      add(level, 1, {out, out, 4, 2, 1, false});
      channels = out;
    }
    const int side = size_px_ >> levels;
    linear1_ = register_module("linear1", torch::nn::Linear(channels * side * side, kHidden));
    linear2_ = register_module("linear2", torch::nn::Linear(kHidden, 1));
  }

  DiscriminatorPass pass() override {
    DiscriminatorPass pass;
    for (const Level& level : levels_) {
      const torch::Tensor weight = add_weight(pass, *level.conv);
      if (level.norm) add_weights(pass, *level.norm);
      pass.segments.emplace_back([level, weight](const Tensors& in) {
        if (!level.norm) return Tensors{level.conv->forward(in.front(), weight, Activation::leaky_relu_02)};
        torch::Tensor x = level.norm.ptr()->forward(level.conv->forward(in.front(), weight));
        return Tensors{at::leaky_relu_(x, 0.2)};  // in place: one tensor less for the backward pass
      });
    }
    add_weights(pass, *linear1_);
    add_weights(pass, *linear2_);
    pass.segments.emplace_back([this](const Tensors& in) {
      return Tensors{linear2_->forward(at::leaky_relu(linear1_->forward(in.front().flatten(1)), 0.2))};
    });
    return pass;
  }

  int size_multiple() const override { return 1 << levels_of(size_px_); }
  int smallest_px() const override { return 32; }
  int fixed_px() const override { return size_px_; }

 private:
  void add(int level, int part, const SpectralConvOptions& options) {
    const std::string place = fmt::format("{}_{}", level, part);
    Level made{register_module("conv" + place, std::make_shared<SpectralConv2d>(options))};
    if (level + part > 0) made.norm = register_module("bn" + place, torch::nn::BatchNorm2d(options.out));
    levels_.push_back(std::move(made));
  }

  int size_px_;
  std::vector<Level> levels_;
  torch::nn::Linear linear1_{nullptr}, linear2_{nullptr};
};

void check(const DiscriminatorOptions& options) {
  const int size = options.size_px, multiple = 1 << levels_of(size);
  if (size > 0 && size % multiple == 0) return;
  fail_usage(
      fmt::format("discriminator patch_vgg: it is made for pictures of one size, and these are {} pixels a side "
                  "(data.crop_px times "
                  "model.scale), allowed: multiples of {}",
                  size, multiple));
}

}  // namespace
}  // namespace patch_vgg

std::shared_ptr<Discriminator> make_patch_vgg(const DiscriminatorOptions& options) {
  patch_vgg::check(options);
  return std::make_shared<patch_vgg::PatchVgg>(options);
}

std::optional<DiscriminatorOptions> detect_patch_vgg(const StateShapes& shapes) {
  const auto features = static_cast<int>(shapes.outputs("conv0_0"));
  if (features == 0 || !shapes.has("conv4_1.weight")) return std::nullopt;
  const int levels = shapes.has("conv5_1.weight") ? 6 : 5;
  const double area = static_cast<double>(shapes.inputs("linear1")) / (features * patch_vgg::widening(levels - 1));
  return DiscriminatorOptions{.net = "patch_vgg",
                              .channels = static_cast<int>(shapes.inputs("conv0_0")),
                              .features = features,
                              .size_px = static_cast<int>(std::lround(std::sqrt(area))) << levels};
}

}  // namespace reelgrad
