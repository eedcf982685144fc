#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "reelgrad/train/captured_work.h"
#include "reelgrad/train/step.h"

namespace reelgrad {

// The step as one CUDA graph, cutting of the crops included; with several micro-batches as one graph for each of their
// sizes and one for the updates. Steps of another kind (step.h) are graphs of their own, in the same memory. The first
// steps of a kind run op by op: libraries choose their kernels, memory finds its place.
// In deterministic mode it gives the same bits as EagerStep. On a stream that is not the default one.
class GraphStep : public Step {
 public:
  GraphStep(StepOps& ops, BatchSource& batches, MicroBatches parts);
  ~GraphStep() override;

  // A network that cannot be captured, or that a graph's memory does not fit beside, is run op by op from then on.
  void run(std::int64_t step) override;
  std::optional<double> replay_seconds(int times) override;

  // Why steps are not captured; empty while they are, or are going to be.
  const std::string& why_not() const { return why_not_; }

 private:
  // A kind of steps.
  struct Captured {
    int eager_left;
    std::map<int, std::unique_ptr<CapturedWork>> parts;  // by samples of the micro-batch; empty: not captured yet
    std::unique_ptr<CapturedWork> update;                // null with a single micro-batch, whose graph has it
  };

  Captured& of_kind(StepKind kind);
  bool capture(std::int64_t step, StepKind kind, Captured& captured);
  void prepare(std::int64_t step);
  void record(StepKind kind, Captured& captured);
  void discard();

  StepOps& ops_;
  BatchSource& batches_;
  MicroBatches parts_;
  EagerStep eager_;
  at::cuda::MempoolId_t pool_;
  std::map<int, std::unique_ptr<ReplayedBatch>> replayed_;  // by samples of the micro-batch
  std::map<StepKind, Captured> captured_;
  StepKind last_ = 0;
  std::string why_not_;
};

}  // namespace reelgrad
