// What a run trains, and with what: the pieces that Trainer holds, for the files that say how they fail and how they
// are saved.
#pragma once
#include <torch/types.h>

#include "reelgrad/config/config.h"
#include "reelgrad/data/loader.h"
#include "reelgrad/nn/network.h"
#include "reelgrad/train/adversary.h"
#include "reelgrad/train/amp.h"
#include "reelgrad/train/fitted_steps.h"
#include "reelgrad/train/network_loss.h"
#include "reelgrad/train/step.h"
#include "reelgrad/train/trained_network.h"

namespace reelgrad {

// References; the discriminator's are null where there is none.
struct TrainingParts {
  const Config& config;
  torch::Device device;
  Precision precision;
  Network& network;
  NetworkLoss& loss;
  TrainedNetwork& generator;
  Adversary* adversary;
  TrainedNetwork* opponent;  // the discriminator
  StepOps& ops;
  FittedSteps& steps;
  BatchSource& batches;

  bool is_opponent(const TrainedNetwork& trained) const { return &trained == opponent; }
  int samples() const { return config.data.batch * config.optimizer.accumulate; }  // a step
};

}  // namespace reelgrad
