// PatchGAN, which judges overlapping patches. Source: "Image-to-Image Translation with Conditional Adversarial
// Networks" (Isola et al., 2017); names and shapes are those of its authors' NLayerDiscriminator: model.0, model.2,
// model.3 (its norm), model.5, … With spectral norm or none, no batch statistics tie the pictures of a batch together,
// and each convolution keeps its bias; the numbers are then those without the norms.
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>

#include "reelgrad/base/error.h"
#include "reelgrad/nn/discriminators.h"

namespace reelgrad {
namespace patchgan {
namespace {

using Tensors = std::vector<torch::Tensor>;

struct Layer {
  std::shared_ptr<SpectralConv2d> conv;
  torch::nn::BatchNorm2d norm{nullptr};
  bool is_last = false;
};

class PatchGan : public Discriminator {
 public:
  explicit PatchGan(const DiscriminatorOptions& options)
      : halvings_(options.layers), has_norm_(options.norm == "batch"), spectral_(options.norm == "spectral") {
    int channels = options.channels;
    for (int i = 0; i <= halvings_; ++i) {
      const int out = options.features * std::min(1 << i, 8);
      add({channels, out, 4, i < halvings_ ? 2 : 1, 1, i == 0 || !has_norm_, spectral_}, i > 0 && has_norm_);
      model_->push_back(torch::nn::LeakyReLU(torch::nn::LeakyReLUOptions().negative_slope(0.2)));
      channels = out;
    }
    add({channels, 1, 4, 1, 1, true, spectral_}, false);
    layers_.back().is_last = true;
    register_module("model", model_);
  }

  DiscriminatorPass pass() override {
    DiscriminatorPass pass;
    for (const Layer& layer : layers_) {
      const torch::Tensor weight = add_weight(pass, *layer.conv);
      if (layer.norm) add_weights(pass, *layer.norm);
      pass.segments.emplace_back([layer, weight](const Tensors& in) {
        torch::Tensor x = layer.conv->forward(in.front(), weight);
        if (layer.norm) x = layer.norm.ptr()->forward(x);
        return Tensors{layer.is_last ? x : at::leaky_relu_(x, 0.2)};  // in place: less for the backward pass
      });
    }
    return pass;
  }

  int size_multiple() const override { return 1; }
  int smallest_px() const override { return 3 << halvings_; }  // a 4x4 kernel with a border of 1 takes one, twice

 private:
  void add(const SpectralConvOptions& options, bool norm) {
    Layer layer{std::make_shared<SpectralConv2d>(options)};
    model_->push_back(layer.conv);
    if (norm) {
      layer.norm = torch::nn::BatchNorm2d(options.out);
      model_->push_back(layer.norm);
    }
    layers_.push_back(std::move(layer));
  }

  int halvings_;
  bool has_norm_, spectral_;
  torch::nn::ModuleList model_;
  std::vector<Layer> layers_;
};

void check(const DiscriminatorOptions& options) {
  if (options.norm != "batch" && options.norm != "spectral" && options.norm != "none") {
    fail_usage(fmt::format("discriminator patchgan: norm = \"{}\", allowed: batch, spectral, none", options.norm));
  }
  if (options.layers < 1 || options.layers > 8) {
    fail_usage(fmt::format("discriminator patchgan: layers = {}, allowed: 1 to 8", options.layers));
  }
}

}  // namespace
}  // namespace patchgan

std::shared_ptr<Discriminator> make_patchgan(const DiscriminatorOptions& options) {
  patchgan::check(options);
  return std::make_shared<patchgan::PatchGan>(options);
}

std::optional<DiscriminatorOptions> detect_patchgan(const StateShapes& shapes) {
  const bool spectral = shapes.has("model.0.weight_orig");
  const auto& first = shapes.shape(spectral ? "model.0.weight_orig" : "model.0.weight");  // [features, channels, 4, 4]
  if (first.size() != 4 || first[2] != 4) return std::nullopt;
  // A convolution and an activation a layer, from the second on with a norm between them, and a convolution.
  const bool batch = shapes.has("model.3.running_mean");
  const int modules = shapes.count_after("model.");
  return DiscriminatorOptions{.net = "patchgan",
                              .channels = static_cast<int>(first[1]),
                              .features = static_cast<int>(first[0]),
                              .layers = (modules - 3) / (batch ? 3 : 2),
                              .norm = batch      ? "batch"
                                      : spectral ? "spectral"
                                                 : "none"};
}

}  // namespace reelgrad
