#include "reelgrad/restore/feature_measures.h"

#include <torch/utils.h>

namespace reelgrad {
namespace {

// As a batch of one, in colour.
torch::Tensor as_batch(const torch::Tensor& picture) {
  return picture.clamp(0, 1).expand({3, -1, -1}).unsqueeze(0);
}

}  // namespace

FeatureMeasures::FeatureMeasures(const LossConfig& config) {
  if (!config.lpips.backbone.empty()) lpips_.emplace(config.lpips, NetworkColor::rgb, Precision::fp32);
  if (!config.dists.backbone.empty()) dists_.emplace(config.dists, NetworkColor::rgb, Precision::fp32);
}

void FeatureMeasures::measure(const torch::Tensor& picture, const torch::Tensor& target, QualityScores& scores) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor a = as_batch(picture), b = as_batch(target);
  if (lpips_) scores.lpips = (*lpips_)(a, b).item<double>();
  if (dists_) scores.dists = (*dists_)(a, b).item<double>();
}

}  // namespace reelgrad
