#pragma once
#include <torch/types.h>

#include <functional>
#include <string>
#include <vector>

#include "reelgrad/config/config.h"
#include "reelgrad/kernels/color.h"
#include "reelgrad/train/pixel_loss.h"

namespace reelgrad {

struct LossValue {
  torch::Tensor total;  // scalar, differentiable: the sum of weight times term
  torch::Tensor terms;  // [names().size()], detached: each weighted term, in the order of names()
};

// The sum of the terms whose weights are not 0, each a mean over what it looks at, so that weights mean the same for
// every size; d = prediction - target:
//   l1, mse, charbonnier, huber   of d, plane by plane (pixel_loss.h)
//   ssim, ms_ssim                 1 - (MS-)SSIM (ssim_loss.h)
//   fft                           |re| and |im| of the two-dimensional spectrum of d: torch.fft.rfft2, norm "ortho"
//   edge                          of d's edges (edge_loss.h)
//   temporal                      |d of a frame - d of the frame before|: how prediction and target change
// Half types are computed in float32, whatever autocast says; float64 stays. Nothing waits for the card, and each
// backward pass gives the same bits on every run. The first call on a device makes small constants there: it must not
// be one that a CUDA graph is captured from. For one thread at a time.
class Loss {
 public:
  // Throws usage for luma and chroma weights of a gray network.
  Loss(const LossConfig& config, NetworkColor color);

  const std::vector<std::string>& names() const { return names_; }  // "charbonnier", "ssim", …

  // [N, C, H, W] both; with a temporal term [N, 2, C, H, W], two frames that follow each other: other terms see both.
  // Throws usage when pictures are too small for a term, failed when the shapes differ. The target gets no gradient.
  LossValue operator()(const torch::Tensor& prediction, const torch::Tensor& target) const;

 private:
  struct Pictures;
  struct Term {
    double weight;
    std::function<torch::Tensor(const Pictures&)> value;  // scalar
  };
  void add(const std::string& name, double weight, std::function<torch::Tensor(const Pictures&)> value);
  void check_shapes(const torch::Tensor& prediction, const torch::Tensor& target) const;

  PlaneWeights planes_;
  bool of_pairs_;  // [N, 2, C, H, W]
  std::vector<std::string> names_;
  std::vector<Term> terms_;
};

}  // namespace reelgrad
