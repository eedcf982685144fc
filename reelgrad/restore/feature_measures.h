#pragma once
#include <torch/types.h>

#include <optional>

#include "reelgrad/config/config.h"
#include "reelgrad/train/feature_loss.h"
#include "reelgrad/train/recorder.h"

namespace reelgrad {

// LPIPS and DISTS of single pictures, by the networks that [loss] names, in float32.
class FeatureMeasures {
 public:
  // Those whose backbone is named. Throws as LpipsLoss and DistsLoss do.
  explicit FeatureMeasures(const LossConfig& config);

  bool none() const { return !lpips_ && !dists_; }

  // Fills in lpips and dists. float32 [C, H, W] in [0, 1] of equal shape on one device, C = 1 or 3.
  void measure(const torch::Tensor& picture, const torch::Tensor& target, QualityScores& scores);

 private:
  std::optional<LpipsLoss> lpips_;
  std::optional<DistsLoss> dists_;
};

}  // namespace reelgrad
