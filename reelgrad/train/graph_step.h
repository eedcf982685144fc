#pragma once
#include <map>
#include <memory>
#include <string>

#include "reelgrad/train/captured_work.h"
#include "reelgrad/train/step.h"

namespace reelgrad {

// The step as one CUDA graph, cutting of the crops included; with several micro-batches as one graph for each of their
// sizes and one for the updates. The first steps run op by op: libraries choose their kernels, memory finds its place.
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
  struct Part;

  bool capture(std::int64_t step);
  void prepare(std::int64_t step);
  void record();
  Part& part_of(int count) { return *captured_.at(count); }
  void discard();

  StepOps& ops_;
  BatchSource& batches_;
  MicroBatches parts_;
  EagerStep eager_;
  int eager_left_;
  std::map<int, std::unique_ptr<Part>> captured_;  // by samples of the micro-batch
  std::unique_ptr<CapturedWork> update_;           // null with a single micro-batch, whose graph has it
  std::string why_not_;
};

}  // namespace reelgrad
