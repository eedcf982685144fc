#pragma once
#include <torch/types.h>

#include <functional>

#include "reelgrad/config/config.h"
#include "reelgrad/data/loader.h"
#include "reelgrad/nn/network.h"
#include "reelgrad/train/adversary.h"
#include "reelgrad/train/amp.h"
#include "reelgrad/train/checkpointing.h"
#include "reelgrad/train/loss.h"

namespace reelgrad {

// The forward pass of training and its loss. Works in the dtype of the network's parameters, under autocast in
// `precision`. Network and adversary kept by reference.
class NetworkLoss {
 public:
  // `adversary`: of loss.gan; nullptr: none.
  NetworkLoss(const Config& config, Network& network, Precision precision, Adversary* adversary = nullptr);

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

  // Of the run, for weights that change with them.
  void set_done_steps(torch::Tensor done) { loss_.set_done_steps(std::move(done)); }
  const std::vector<std::string>& names() const { return names_; }

  torch::Tensor network_input(const Batch& batch) const;
  torch::Tensor target(const Batch& batch) const { return batch.target.to(dtype_); }
  void with_autocast(const std::function<void()>& work) const;

 private:
  torch::Tensor prediction_of(const Batch& batch) const;
  torch::Tensor adversarial_term(const torch::Tensor& prediction, const torch::Tensor& target) const;
  static LossValue with_adversary(const LossValue& value, const torch::Tensor& term);

  Network& network_;
  Precision precision_;
  torch::Device device_;
  torch::ScalarType dtype_;
  bool pairs_;  // of frames that follow each other, for the temporal term
  Loss loss_;
  Adversary* adversary_;
  LossWeight adversary_weight_;
  std::vector<std::string> names_;
  CheckpointPlan checkpointing_;
};

}  // namespace reelgrad
