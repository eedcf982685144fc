#pragma once
#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include "reelgrad/config/config.h"
#include "reelgrad/data/loader.h"
#include "reelgrad/nn/discriminators.h"
#include "reelgrad/train/amp.h"
#include "reelgrad/train/checkpointing.h"
#include "reelgrad/train/gan_loss.h"
#include "reelgrad/train/loss.h"
#include "reelgrad/train/schedule.h"

namespace reelgrad {

// The discriminator that the configuration asks for.
DiscriminatorOptions discriminator_options(const Config& config);

// The steps that update the generator; the others train the discriminator alone (discriminator.iters, init_iters).
UpdateSteps generator_steps(const Config& config);

// What the discriminator says in the training of a generator, and what it learns. A step goes through both: the
// generator's loss of its prediction, through a discriminator whose parameters get no gradient, then the
// discriminator's loss of the target and of the very same prediction. Its forward passes come in the order of the usual
// PyTorch loop (BasicSR's), and with them the power iterations of spectral norm: the prediction (relativistic losses:
// the target before it, without gradients); the target, the prediction.
// Works under autocast in `precision`, its losses in float32 or float64. For one thread at a time.
class Adversary {
 public:
  // Moves the discriminator to `device`, and there to channels-last.
  Adversary(const Config& config, std::shared_ptr<Discriminator> discriminator, torch::Device device,
            Precision precision);

  Discriminator& network() const { return *network_; }

  // The discriminator keeps less for the backward pass, and computes it again; not of what r1 looks at.
  void set_checkpointing(bool on) { checkpointing_.segments = on ? kCheckpointedGroups : 0; }

  // [N, C, H, W], or [N, F, C, H, W] of frames that follow each other, both. A mean, not weighted.
  torch::Tensor generator_loss(const torch::Tensor& prediction, const torch::Tensor& target) const;

  // The prediction of a micro-batch, for the add_gradients() that follows.
  void take(const torch::Tensor& prediction) { taken_ = prediction.detach(); }

  // Of the discriminator's loss. The value's terms are term_names() and then the measures. Real and made pictures are
  // gone through one after the other, each with its backward, so that memory holds one of them; relativistic losses
  // compare the two, and need both at once.
  LossValue add_gradients(const torch::Tensor& target, const Backward& backward);

  // Of the loss of the discriminator: "gan", and "r1" where it is asked for.
  const std::vector<std::string>& term_names() const { return term_names_; }

  // Means of the logits, and the share of logits that are right: real ones above and made ones below the middle.
  enum Measure { kReal, kFake, kRight, kMeasures };

 private:
  static constexpr int kCheckpointedGroups = 3;  // the root of the U-Net's ten segments

  std::vector<torch::Tensor> judged(const torch::Tensor& pictures, const CheckpointPlan& plan) const;
  torch::Tensor penalty(const std::vector<torch::Tensor>& logits, const torch::Tensor& real) const;
  torch::Tensor pictures(const torch::Tensor& frames) const;
  torch::Tensor measures(const std::vector<torch::Tensor>& real, const std::vector<torch::Tensor>& fake) const;

  std::shared_ptr<Discriminator> network_;
  torch::Device device_;
  Precision precision_;
  GanLoss loss_;
  double middle_;  // of the logits' labels
  double r1_;
  bool frames_together_;  // the frames of a sample are one picture, their channels one after the other
  std::vector<std::string> term_names_;
  CheckpointPlan checkpointing_;
  torch::Tensor taken_;
};

}  // namespace reelgrad
