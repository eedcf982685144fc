// Real-ESRGAN's U-Net with spectral norm, which judges every pixel. Source: "Real-ESRGAN: Training Real-World Blind
// Super-Resolution with Pure Synthetic Data" (Wang et al., 2021); names and shapes are those of its published
// RealESRGAN_x4plus_netD.pth and of BasicSR's and traiNNer's UNetDiscriminatorSN: conv0 … conv9.
#include <fmt/format.h>
#include <torch/torch.h>

#include <array>

#include "reelgrad/nn/bilinear_doubling.h"
#include "reelgrad/nn/discriminators.h"

namespace reelgrad {
namespace unet_sn {
namespace {

using Tensors = std::vector<torch::Tensor>;

constexpr std::size_t kConvs = 10;

class UNetSN : public Discriminator {
 public:
  explicit UNetSN(const DiscriminatorOptions& options)
      : skips_(options.skips), second_derivatives_(options.second_derivatives) {
    const int f = options.features;
    const auto normed = [&](int in, int out, int kernel, int stride) {
      add({in, out, kernel, stride, 1, false, true, options.second_derivatives});
    };
    add({.in = options.channels,
         .out = f,
         .kernel = 3,
         .padding = 1,
         .second_derivatives = options.second_derivatives});
    for (int factor : {1, 2, 4}) normed(factor * f, 2 * factor * f, 4, 2);
    for (int factor : {8, 4, 2}) normed(factor * f, factor * f / 2, 3, 1);
    for (int i = 0; i < 2; ++i) normed(f, f, 3, 1);
    add({.in = f, .out = 1, .kernel = 3, .padding = 1, .second_derivatives = options.second_derivatives});
  }

  DiscriminatorPass pass() override;
  int size_multiple() const override { return 8; }
  int smallest_px() const override { return 8; }

 private:
  void add(const SpectralConvOptions& options) {
    convs_.push_back(register_module(fmt::format("conv{}", convs_.size()), std::make_shared<SpectralConv2d>(options)));
  }

  std::vector<std::shared_ptr<SpectralConv2d>> convs_;
  bool skips_, second_derivatives_;
};

// Between segments: {x, and on the way down the outputs that the way up adds, the coarsest first}.
DiscriminatorPass UNetSN::pass() {
  DiscriminatorPass pass;
  std::array<torch::Tensor, kConvs> weights;
  for (std::size_t i = 0; i < kConvs; ++i) weights[i] = add_weight(pass, *convs_[i]);
  const auto layer = [this, weights](std::size_t i, const torch::Tensor& x) {
    return convs_[i]->forward(x, weights[i], Activation::leaky_relu_02);
  };
  for (std::size_t i = 0; i < 4; ++i) {
    pass.segments.emplace_back([this, layer, i](const Tensors& in) {
      Tensors out{layer(i, in.front())};
      if (skips_ && i > 0) out.insert(out.end(), in.begin(), in.end());
      return out;
    });
  }
  for (std::size_t i = 4; i < 7; ++i) {
    pass.segments.emplace_back([this, layer, i](const Tensors& in) {
      const torch::Tensor x = layer(i, bilinear_doubling(in.front()));
      if (!skips_) return Tensors{x};
      Tensors out{x + in[1]};
      out.insert(out.end(), in.begin() + 2, in.end());
      return out;
    });
  }
  const std::array<ConvLayer, 3> end{{{weights[7], {}, Activation::leaky_relu_02},
                                      {weights[8], {}, Activation::leaky_relu_02},
                                      {weights[9], convs_[9]->bias()}}};
  pass.segments.emplace_back([this, layer, end](const Tensors& in) {
    if (second_derivatives_) return Tensors{convs_[9]->forward(layer(8, layer(7, in.front())), end.back().weight)};
    return Tensors{conv3x3_row(in.front(), end)};
  });
  return pass;
}

}  // namespace
}  // namespace unet_sn

std::shared_ptr<Discriminator> make_unet_sn(const DiscriminatorOptions& options) {
  return std::make_shared<unet_sn::UNetSN>(options);
}

std::optional<DiscriminatorOptions> detect_unet_sn(const StateShapes& shapes) {
  if (!shapes.has("conv0.weight") || !shapes.has("conv1.weight_orig")) return std::nullopt;
  return DiscriminatorOptions{.net = "unet_sn",
                              .channels = static_cast<int>(shapes.inputs("conv0")),
                              .features = static_cast<int>(shapes.outputs("conv0"))};
}

}  // namespace reelgrad
