#pragma once
#include <torch/nn/module.h>

#include <cstdint>
#include <optional>
#include <string>

#include "reelgrad/train/meter.h"
#include "reelgrad/train/read_back.h"
#include "reelgrad/train/updater.h"

namespace reelgrad {

// One of the networks that a run trains: what changes it, and what is read back of it without waiting.
class TrainedNetwork {
 public:
  // `values`: of its loss a step. Kept by reference; it is where it stays.
  TrainedNetwork(torch::nn::Module& network, const Updater::Options& options, std::int64_t values, torch::Device device)
      : updater(options, network), meter(values, device), scales_(options.loss_scaling), network_(network) {}

  torch::nn::Module& network() const { return network_; }
  bool scales_loss() const { return scales_; }

  Updater updater;
  LossMeter meter;
  UpdateCounters counters;  // as read back last

  // Looks at the loss scale after step `step`, without waiting but for a row of skipped steps that grows too long. What
  // is wrong: "21 steps in a row had gradients that are not finite (loss scale 0.5, …)"; else empty.
  std::string watch_scale(std::int64_t step);

 private:
  bool scales_;
  torch::nn::Module& network_;
  std::optional<ReadBack> counting_;
  std::int64_t counting_step_ = 0;
};

}  // namespace reelgrad
