// Losses that look through a frozen network. They run in the type in which training convolves, keep nothing of the
// target's side for the backward pass, wait for nothing, and may be captured after a first call on a device.
#pragma once
#include <torch/types.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "reelgrad/config/config.h"
#include "reelgrad/kernels/color.h"
#include "reelgrad/nn/feature_network.h"
#include "reelgrad/train/amp.h"
#include "reelgrad/train/line_filter.h"

namespace reelgrad {

// What all of them see: R'G'B' in [0, 1] of pictures [N, C, H, W] in a network's colours.
torch::Tensor as_rgb(const torch::Tensor& pictures, NetworkColor color);

class FeatureLoss {
 public:
  virtual ~FeatureLoss() = default;

  // [N, C, H, W] both, float32 or float64, no smaller than the network needs. Scalar: a mean over the pictures.
  torch::Tensor operator()(const torch::Tensor& prediction, const torch::Tensor& target);

  // Of the prediction's side: the same values for less memory and more time.
  void set_checkpointing(bool on) { checkpointing_ = on; }

 protected:
  FeatureLoss(FeatureNetwork network, NetworkColor color, Precision precision, std::vector<double> mean,
              std::vector<double> deviation);

  // The taps of both sides, in the type that the network ran in. `prediction`, `target`: R'G'B'.
  virtual torch::Tensor distance(const torch::Tensor& prediction, const torch::Tensor& target,
                                 const std::vector<torch::Tensor>& prediction_features,
                                 const std::vector<torch::Tensor>& target_features) = 0;

 private:
  std::vector<torch::Tensor> features(const torch::Tensor& rgb);

  FeatureNetwork network_;
  NetworkColor color_;
  Precision precision_;
  ConstantVector mean_, deviation_;  // of R'G'B'
  bool checkpointing_ = false;
};

// Sum over the layers of their weights times the distance of features. l1, mse: a mean over the values; gram: the mean
// absolute difference of the Gram matrices over C H W. "Perceptual Losses for Real-Time Style Transfer and
// Super-Resolution" (Johnson et al., 2016), "ESRGAN" (Wang et al., 2018: before the activation); as BasicSR's.
class PerceptualLoss : public FeatureLoss {
 public:
  PerceptualLoss(const PerceptualConfig& config, NetworkColor color, Precision precision);

 protected:
  torch::Tensor distance(const torch::Tensor& prediction, const torch::Tensor& target,
                         const std::vector<torch::Tensor>& prediction_features,
                         const std::vector<torch::Tensor>& target_features) override;

 private:
  torch::Tensor of_layer(const torch::Tensor& prediction, const torch::Tensor& target) const;

  std::string criterion_;
  std::vector<double> weights_;  // in the order of the taps
};

// LPIPS, version 0.1: "The Unreasonable Effectiveness of Deep Features as a Perceptual Metric" (Zhang et al., 2018); as
// the package lpips computes it of pictures in [-1, 1].
class LpipsLoss : public FeatureLoss {
 public:
  // Throws usage where LPIPS's own weights are not found.
  LpipsLoss(const LpipsConfig& config, NetworkColor color, Precision precision);

 protected:
  torch::Tensor distance(const torch::Tensor& prediction, const torch::Tensor& target,
                         const std::vector<torch::Tensor>& prediction_features,
                         const std::vector<torch::Tensor>& target_features) override;

 private:
  std::vector<ConstantVector> weights_;  // of each tap's channels
};

// DISTS: "Image Quality Assessment: Unifying Structure and Texture Similarity" (Ding et al., 2020); as the package
// DISTS-pytorch computes it.
class DistsLoss : public FeatureLoss {
 public:
  // Throws usage where DISTS's own weights are not found.
  DistsLoss(const DistsConfig& config, NetworkColor color, Precision precision);

 protected:
  torch::Tensor distance(const torch::Tensor& prediction, const torch::Tensor& target,
                         const std::vector<torch::Tensor>& prediction_features,
                         const std::vector<torch::Tensor>& target_features) override;

 private:
  std::vector<ConstantVector> alpha_, beta_;  // of the picture's channels and of each tap's; all sum to 1
};

// A file of an installed Python package, in the site-packages that hold torch, around this program or of the active
// environment, or where such a package puts it against the environment's own folder; empty: it is in none.
std::filesystem::path file_of_python_package(const std::filesystem::path& in_site_packages,
                                             const std::filesystem::path& in_environment = {});

}  // namespace reelgrad
