#pragma once
#include <torch/types.h>

#include <functional>
#include <optional>

#include "reelgrad/config/config.h"
#include "reelgrad/data/loader.h"
#include "reelgrad/nn/network.h"
#include "reelgrad/train/adversary.h"
#include "reelgrad/train/amp.h"
#include "reelgrad/train/checkpointing.h"
#include "reelgrad/train/loss.h"
#include "reelgrad/train/updater.h"

namespace reelgrad {

// The terms of the configuration, which reads the files of frozen networks: the constructor of Loss says what it
// throws.
Loss make_loss(const Config& config, Precision precision);

// The forward pass of training and its loss. Works in the dtype of the network's parameters, under autocast in
// `precision`. Network and adversary kept by reference.
class NetworkLoss {
 public:
  // `adversary`: of loss.gan; nullptr: none. `loss`: of make_loss(), where it is made already.
  NetworkLoss(const Config& config, Network& network, Precision precision, Adversary* adversary = nullptr,
              std::optional<Loss> loss = std::nullopt);

  LossValue operator()(const Batch& batch) const;

  // Its gradients, for a step. The adversary's part is done, and its memory free, before the others are begun; it has
  // the prediction afterwards.
  LossValue add_gradients(const Batch& batch, const Backward& backward) const;

  // The prediction for the adversary alone, without gradients.
  void predict(const Batch& batch) const;

  // Frozen networks of the loss and the adversary are checkpointed with the network.
  void set_checkpointing(CheckpointPlan plan) {
    checkpointing_ = plan;
    loss_.set_checkpointing(plan.segments > 0);
    if (adversary_ != nullptr) adversary_->set_checkpointing(plan.segments > 0);
  }
  bool has_other_networks() const { return loss_.has_frozen_networks() || adversary_ != nullptr; }

  // Whose averaged weights are those of a term that asks for the average's output (ldl): the pass goes before that of
  // the training, in evaluation mode, as the average stands before this step. Kept by reference.
  void set_average(Updater& updater) { average_ = &updater; }

  // Of the run, for weights that change with them.
  void set_done_steps(torch::Tensor done) { loss_.set_done_steps(std::move(done)); }
  const std::vector<std::string>& names() const { return names_; }

  torch::Tensor network_input(const Batch& batch) const;
  torch::Tensor target(const Batch& batch) const { return batch.target.to(dtype_); }
  void with_autocast(const std::function<void()>& work) const;

 private:
  torch::Tensor prediction_of(const Batch& batch) const;
  torch::Tensor average_prediction_of(const Batch& batch) const;
  torch::Tensor frames_of(const torch::Tensor& output) const;
  torch::Tensor adversarial_term(const torch::Tensor& prediction, const torch::Tensor& target) const;
  static LossValue with_adversary(const LossValue& value, const torch::Tensor& term);

  Network& network_;
  Precision precision_;
  torch::Device device_;
  torch::ScalarType dtype_;
  int frames_;  // of a sample
  Loss loss_;
  Updater* average_ = nullptr;
  Adversary* adversary_;
  LossWeight adversary_weight_;
  std::vector<std::string> names_;
  CheckpointPlan checkpointing_;
};

}  // namespace reelgrad
