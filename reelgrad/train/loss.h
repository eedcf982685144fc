#pragma once
#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "reelgrad/config/config.h"
#include "reelgrad/kernels/color.h"
#include "reelgrad/train/amp.h"
#include "reelgrad/train/feature_loss.h"
#include "reelgrad/train/pixel_loss.h"

namespace reelgrad {

struct LossValue {
  torch::Tensor total;  // scalar, differentiable: the sum of weight times term
  torch::Tensor terms;  // [names().size()], detached: each weighted term, in the order of names()
};

// Adds the gradients of a loss or a part of one, weighted and scaled as the step has it.
using Backward = std::function<void(const torch::Tensor& scalar)>;

// The sum of the terms whose weights are not 0, each a mean over what it looks at, so that weights mean the same for
// every size; d = prediction - target:
//   l1, mse, charbonnier, huber   of d, plane by plane (pixel_loss.h)
//   ssim, ms_ssim                 1 - (MS-)SSIM (ssim_loss.h)
//   fft                           |re| and |im| of the two-dimensional spectrum of d: torch.fft.rfft2, norm "ortho"
//   edge                          of d's edges (edge_loss.h)
//   temporal                      |d of a frame - d of the frame before|: how prediction and target change
//   ldl                           d where it varies, and the average's is no larger (ldl_loss.h)
//   perceptual, lpips, dists      of a frozen network's features (feature_loss.h)
//   focal_frequency               of d's spectrum (focal_frequency_loss.h)
//   wavelet                       of d's wavelet bands (wavelet_loss.h)
//   color                         |Cb| and |Cr| of d, averaged over squares
// Half types are computed in float32, whatever autocast says; float64 stays. Nothing waits for the card, and each
// backward pass gives the same bits on every run. The first call on a device makes small constants there: it must not
// be one that a CUDA graph is captured from. For one thread at a time.
class Loss {
 public:
  // `precision`: of frozen networks. Throws usage for luma and chroma weights of a gray network, and where a weights
  // file is missing; failed where one is not what it should be.
  Loss(const LossConfig& config, NetworkColor color, Precision precision = Precision::fp32);

  // The count of steps done, float64 [] on the device of the pictures and live: for weights that begin late or rise.
  // They are computed on the device, so that a captured step need not be captured again.
  void set_done_steps(torch::Tensor done) { done_steps_ = std::move(done); }

  // Frozen networks keep less for the backward pass, and compute it again.
  void set_checkpointing(bool on);
  bool has_frozen_networks() const { return !frozen_.empty(); }

  const std::vector<std::string>& names() const { return names_; }  // "charbonnier", "ssim", …

  // [N, C, H, W] both, or [N, F, C, H, W], frames that follow each other, which a temporal term needs: other terms see
  // each of them. Throws usage when pictures are too small for a term, failed when the shapes differ, and where a
  // weight changes with the steps and they were not set. The target gets no gradient, nor does `average`: the averaged
  // network's output for a loss that asks for it; undefined: it does without.
  LossValue operator()(const torch::Tensor& prediction, const torch::Tensor& target,
                       const torch::Tensor& average = {}) const;
  bool asks_for_average() const { return asks_for_average_; }

  // The value of a term times what it weighs now.
  torch::Tensor times_weight(const LossWeight& weight, const torch::Tensor& value) const;

 private:
  struct Pictures;
  using Value = std::function<torch::Tensor(const Pictures&)>;  // scalar
  struct Term {
    LossWeight weight;
    Value value;
  };
  void add(const std::string& name, const LossWeight& weight, Value value);
  template <class Made, class Settings>
  void add_frozen(const std::string& name, const Settings& settings, NetworkColor color, Precision precision);
  void check_shapes(const torch::Tensor& prediction, const torch::Tensor& target) const;

  PlaneWeights planes_;
  bool temporal_, asks_for_average_;
  std::vector<std::string> names_;
  std::vector<Term> terms_;
  std::vector<std::shared_ptr<FeatureLoss>> frozen_;
  torch::Tensor done_steps_;
};

}  // namespace reelgrad
