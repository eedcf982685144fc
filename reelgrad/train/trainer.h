#pragma once
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "reelgrad/config/config.h"
#include "reelgrad/data/loader.h"
#include "reelgrad/nn/network.h"
#include "reelgrad/train/recorder.h"

namespace reelgrad {

enum class TrainOutcome { finished, stopped_at, interrupted };

struct TrainerHooks {
  std::function<bool()> stop_requested;                                // polled every step
  std::function<void(std::int64_t step, const StepRecord&)> progress;  // at most ~5 times a second, latest values
};

// Runs optimizer steps until config.run.steps. The loop is the data flow: batch, forward, loss, backward and step,
// record, maybe validate, maybe save. One thread.
class Trainer {
 public:
  // Moves the network to `device`. `validator` may be null.
  Trainer(const Config& config, std::shared_ptr<Network> network, torch::Device device, BatchSource& batches,
          Recorder& recorder, Validator* validator, TrainerHooks hooks = {});
  ~Trainer();

  void restore(const Snapshot& snapshot);

  // `stop_at`: ends there with a checkpoint, schedule unchanged. A checkpoint is always left at the last step done.
  TrainOutcome run(std::optional<std::int64_t> stop_at = std::nullopt);

  std::int64_t step() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// "cpu", "cuda:0" …; "auto" is the first usable card, else the CPU. Throws no_device when a card is asked for that
// cannot be used.
torch::Device resolve_device(const std::string& name);

// Deterministic algorithms, thread count and cuDNN's settings for the process; before the first tensor.
void apply_determinism(bool deterministic);

}  // namespace reelgrad
