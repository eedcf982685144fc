// One optimizer step: forward, loss and backward of every micro-batch, then the updates. Never waits for the card.
#pragma once
#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "reelgrad/data/loader.h"
#include "reelgrad/train/loss.h"
#include "reelgrad/train/meter.h"
#include "reelgrad/train/updater.h"

namespace reelgrad {

// Of a loss that is one piece.
template <class Loss>
auto whole_backward(Loss loss) {
  return [loss](const Batch& batch, const Backward& backward) {
    LossValue value = loss(batch);
    backward(value.total);
    return value;
  };
}

// One network's part of a step: what it makes small, and what changes its weights. A step may have several (a generator
// and a discriminator): each micro-batch goes through all of them in order before any network is updated. A phase sees
// to it that its backward reaches no weights but its own.
struct Phase {
  // Gives its loss, a mean over the samples, or its parts one after the other, to `backward`. Its value counts.
  std::function<LossValue(const Batch&, const Backward& backward)> add_gradients;
  torch::nn::Module* network;
  Updater* updater;
  LossMeter* meter;  // of the total and the terms of its loss
  // Which steps (0-based) update the network; empty: all. The others run `instead`, for what later phases need of it,
  // and leave weights, optimizer, average and meter alone.
  std::function<bool(std::int64_t step)> is_due = {};
  std::function<void(const Batch&)> instead = {};
};

// Steps of one kind do the same work: a bit for each phase that is due.
using StepKind = unsigned;

// A step's samples in parts as equal as possible.
class MicroBatches {
 public:
  MicroBatches(int samples, int parts) : samples_(samples), parts_(parts) {}
  int samples() const { return samples_; }
  int parts() const { return parts_; }
  int first(int part) const { return static_cast<int>(std::int64_t{samples_} * part / parts_); }
  int count(int part) const { return first(part + 1) - first(part); }

 private:
  int samples_, parts_;
};

// What a step does on the device once its batch is there; all of it may be captured in a CUDA graph. If one of these
// throws (out of memory), no weight, average, counter or meter has changed.
class StepOps {
 public:
  // `shared_loss_scale`: of all networks, which then all have one (Updater::share_loss_scale).
  StepOps(std::vector<Phase> phases, int samples, bool shared_loss_scale = false);

  StepKind kind_of(std::int64_t step) const;
  StepKind largest_kind() const;  // all phases

  std::vector<torch::Tensor> buffers() const;  // of all networks
  bool has_batch_statistics() const;           // any of them

  void drop_gradients();
  void clear_gradients();  // to zero, where they are
  void start_afresh();     // as before a step's first accumulate()

  // Adds the gradients of the micro-batch, weighted by its share of the samples: the sum is the whole batch's mean.
  void accumulate(const Batch& batch, StepKind kind);
  // Updates each network that is due and gives its losses to its meter.
  void finish(StepKind kind);

 private:
  void share_loss_scale(StepKind kind);

  std::vector<Phase> phases_;
  int samples_;
  bool shared_loss_scale_;
  std::vector<torch::Tensor> losses_;  // a phase: float64 [values a step], on the device: the sums so far
};

class Step {
 public:
  virtual ~Step() = default;
  virtual void run(std::int64_t step) = 0;
  // Seconds of a captured step alone, on the data that it was run with last; waits for the card. It trains on, so that
  // the weights are of no use afterwards. nullopt: nothing is captured.
  virtual std::optional<double> replay_seconds(int /*times*/) { return std::nullopt; }
};

// Op by op.
class EagerStep : public Step {
 public:
  EagerStep(StepOps& ops, BatchSource& batches, MicroBatches parts) : ops_(ops), batches_(batches), parts_(parts) {}
  void run(std::int64_t step) override;
  // As zeros, to which the next step adds where they are.
  void keep_gradients() { keep_gradients_ = true; }

 private:
  StepOps& ops_;
  BatchSource& batches_;
  MicroBatches parts_;
  bool keep_gradients_ = false;
};

}  // namespace reelgrad
