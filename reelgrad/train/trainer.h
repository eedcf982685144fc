#pragma once
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "reelgrad/config/config.h"
#include "reelgrad/data/loader.h"
#include "reelgrad/nn/discriminators.h"
#include "reelgrad/nn/network.h"
#include "reelgrad/train/loss.h"
#include "reelgrad/train/recorder.h"

namespace reelgrad {

// stopped_at: the step asked for was reached before the run's last.
enum class TrainOutcome { finished, stopped_at, interrupted };

struct TrainerHooks {
  std::function<bool()> stop_requested;  // polled every step
  // At most ~5 times a second, latest values. On a card the loss is the last record's, NaN before the first.
  std::function<void(std::int64_t step, const StepRecord&)> progress;
};

// Runs optimizer steps until config.run.steps. The loop is the data flow: batch, forward, loss, backward and step,
// record, maybe validate, maybe save. One thread. A step is one batch taken, also where its update was skipped (fp16):
// the log, checkpoints and sampling count steps; learning rate, optimizer and EMA count updates.
//
// A loss or weight that is not finite ends the run (failed) at the next record or checkpoint, naming the step and
// tensor; nothing that is not finite reaches Recorder::checkpoint. Running out of memory: out_of_memory.
//
// With loss.gan a step trains two networks, the generator first: see StepOps and Adversary. Optimizer, schedule, loss
// scale and clipping are each network's own; the average is the generator's.
class Trainer {
 public:
  // Moves the networks to `device`. `validator` may be null, and so may `discriminator`, where loss.gan asks for none.
  // `loss`: of make_loss() with the precision of resolve_precision(), where it is made already.
  Trainer(const Config& config, std::shared_ptr<Network> network, torch::Device device, BatchSource& batches,
          Recorder& recorder, Validator* validator, TrainerHooks hooks = {},
          std::shared_ptr<Discriminator> discriminator = nullptr, std::optional<Loss> loss = std::nullopt);
  ~Trainer();

  // The run goes on as if it had never stopped (bit for bit in deterministic mode on the same device). Throws failed
  // when the snapshot is not of this network and optimizer.
  void restore(const Snapshot& snapshot);

  // `stop_at`: ends there with a checkpoint, schedule unchanged. On return a checkpoint stands at the last step done.
  TrainOutcome run(std::optional<std::int64_t> stop_at = std::nullopt);

  std::int64_t step() const;

  // For benchmarks, after run(): see Step::replay_seconds(). The trainer is of no use afterwards.
  std::optional<double> replay_seconds(int times);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// "cpu", "cuda:0" …; "auto" is the first usable card, else the CPU. Throws no_device when a card is asked for that
// cannot be used.
torch::Device resolve_device(const std::string& name);

// Deterministic algorithms and cuDNN's settings for the process; before the first tensor. (cuBLAS also wants
// CUBLAS_WORKSPACE_CONFIG in the environment before CUDA starts: the command line's business.)
void apply_determinism(bool deterministic);

// Whether float32 convolutions and products may be computed in TF32, for the process.
void apply_tf32(bool allowed);

// Whether images and convolution weights are kept channels-last there.
bool prefers_channels_last(torch::Device device);

}  // namespace reelgrad
