#pragma once
#include <torch/types.h>

#include <functional>

#include "reelgrad/config/config.h"
#include "reelgrad/data/loader.h"
#include "reelgrad/nn/network.h"
#include "reelgrad/train/amp.h"
#include "reelgrad/train/checkpointing.h"
#include "reelgrad/train/loss.h"

namespace reelgrad {

// The forward pass of training and its loss. Works in the dtype of the network's parameters, under autocast in
// `precision`. Network kept by reference.
class NetworkLoss {
 public:
  NetworkLoss(const Config& config, Network& network, Precision precision);

  LossValue operator()(const Batch& batch) const;

  // Frozen networks of the loss are checkpointed with the network.
  void set_checkpointing(CheckpointPlan plan) {
    checkpointing_ = plan;
    loss_.set_checkpointing(plan.segments > 0);
  }
  void set_done_steps(torch::Tensor done) { loss_.set_done_steps(std::move(done)); }
  const std::vector<std::string>& names() const { return loss_.names(); }

  torch::Tensor network_input(const Batch& batch) const;
  void with_autocast(const std::function<void()>& work) const;

 private:
  Network& network_;
  Precision precision_;
  torch::Device device_;
  torch::ScalarType dtype_;
  bool pairs_;  // of frames that follow each other, for the temporal term
  Loss loss_;
  CheckpointPlan checkpointing_;
};

}  // namespace reelgrad
