// Real-ESRGAN's U-Net with spectral norm, which judges every pixel. Source: "Real-ESRGAN: Training Real-World Blind
// Super-Resolution with Pure Synthetic Data" (Wang et al., 2021); names and shapes are those of its published
// RealESRGAN_x4plus_netD.pth and of BasicSR's and traiNNer's UNetDiscriminatorSN: conv0 … conv9.
#include <fmt/format.h>
#include <torch/torch.h>

#include <array>

#include "reelgrad/nn/discriminators.h"

namespace reelgrad {
namespace unet_sn {
namespace {

using Tensors = std::vector<torch::Tensor>;

constexpr std::size_t kConvs = 10;

torch::Tensor doubled_along(const torch::Tensor& x, std::int64_t dim) {
  const std::int64_t size = x.size(dim);
  const torch::Tensor before = at::cat({x.narrow(dim, 0, 1), x.narrow(dim, 0, size - 1)}, dim);
  const torch::Tensor after = at::cat({x.narrow(dim, 1, size - 1), x.narrow(dim, size - 1, 1)}, dim);
  return at::stack({0.25 * before + 0.75 * x, 0.75 * x + 0.25 * after}, dim + 1).flatten(dim, dim + 1);
}

// Bilinear, twice the size, align_corners=False. torch's own gradient on a card adds in any order: where the same bits
// are asked for it is composed of what has an order.
torch::Tensor doubled(const torch::Tensor& x) {
  if (x.is_cuda() && at::globalContext().deterministicAlgorithms()) {
    const bool half = x.scalar_type() == torch::kHalf || x.scalar_type() == torch::kBFloat16;
    return doubled_along(doubled_along(half ? x.to(torch::kFloat32) : x, 2), 3);
  }
  return at::upsample_bilinear2d(x, {2 * x.size(2), 2 * x.size(3)}, /*align_corners=*/false);
}

class UNetSN : public Discriminator {
 public:
  explicit UNetSN(const DiscriminatorOptions& options) : skips_(options.skips) {
    const int f = options.features;
    add({options.channels, f, 3, 1, 1});
    for (int factor : {1, 2, 4}) add({factor * f, 2 * factor * f, 4, 2, 1, false, true});
    for (int factor : {8, 4, 2}) add({factor * f, factor * f / 2, 3, 1, 1, false, true});
    for (int i = 0; i < 2; ++i) add({f, f, 3, 1, 1, false, true});
    add({f, 1, 3, 1, 1});
  }

  DiscriminatorPass pass() override;
  int size_multiple() const override { return 8; }
  int smallest_px() const override { return 8; }

 private:
  void add(const SpectralConvOptions& options) {
    convs_.push_back(register_module(fmt::format("conv{}", convs_.size()), std::make_shared<SpectralConv2d>(options)));
  }

  std::vector<std::shared_ptr<SpectralConv2d>> convs_;
  bool skips_;
};

// Between segments: {x, and on the way down the outputs that the way up adds, the coarsest first}.
DiscriminatorPass UNetSN::pass() {
  DiscriminatorPass pass;
  std::array<torch::Tensor, kConvs> weights;
  for (std::size_t i = 0; i < kConvs; ++i) weights[i] = add_weight(pass, *convs_[i]);
  const auto layer = [this, weights](std::size_t i, const torch::Tensor& x) {
    torch::Tensor y = convs_[i]->forward(x, weights[i]);
    return at::leaky_relu_(y, 0.2);  // in place: one tensor less for the backward pass
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
      const torch::Tensor x = layer(i, doubled(in.front()));
      if (!skips_) return Tensors{x};
      Tensors out{x + in[1]};
      out.insert(out.end(), in.begin() + 2, in.end());
      return out;
    });
  }
  for (std::size_t i = 7; i < 9; ++i) {
    pass.segments.emplace_back([layer, i](const Tensors& in) { return Tensors{layer(i, in.front())}; });
  }
  pass.segments.emplace_back(
      [this, last = weights[9]](const Tensors& in) { return Tensors{convs_[9]->forward(in.front(), last)}; });
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
