#pragma once
#include <torch/types.h>

#include <functional>

#include "reelgrad/config/config.h"
#include "reelgrad/data/loader.h"
#include "reelgrad/nn/network.h"
#include "reelgrad/train/amp.h"
#include "reelgrad/train/updater.h"

namespace reelgrad {

// One optimizer step, op by op: forward, loss and backward for each micro-batch, then the update.
// Works in the dtype of the network's parameters. Never waits for the card.
class EagerStep {
 public:
  // Network and updater are kept by reference.
  EagerStep(const Config& config, Precision precision, bool channels_last, Network& network, Updater& updater);

  // `fetch(first, count)` gives the step's samples [first, first + count). Returns the loss over all samples: scalar,
  // detached, on the device. Micro-batches weigh by their samples: the sum is the whole batch's mean.
  using Fetch = std::function<Batch(int first, int count)>;
  torch::Tensor run(const Fetch& fetch);

 private:
  torch::Tensor forward_loss(const Batch& batch);

  LossConfig loss_;
  int micro_batch_, samples_;
  Precision precision_;
  bool channels_last_;
  Network& network_;
  Updater& updater_;
  torch::Device device_;
  torch::ScalarType dtype_;
};

}  // namespace reelgrad
