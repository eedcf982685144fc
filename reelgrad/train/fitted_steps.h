#pragma once
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "reelgrad/config/config.h"
#include "reelgrad/nn/network.h"
#include "reelgrad/train/memory_plan.h"
#include "reelgrad/train/network_loss.h"
#include "reelgrad/train/step.h"

namespace reelgrad {

// Runs steps by a plan that fits into memory. When memory runs out, what the failed step took is given back, the next
// plan of the ladder is chosen (memory_plan.h), said in the log, and the same step is run again with the same samples
// and random numbers: as if it had been run with that plan from the start.
class FittedSteps {
 public:
  // All are kept by reference. On a card the steps run on the current stream, which is not the default one.
  FittedSteps(const Config& config, Network& network, NetworkLoss& loss, StepOps& ops, BatchSource& batches,
              torch::Device device);

  // With memory.checkpointing = "auto": tries the forward and backward pass of step `step` without checkpointing, with
  // it, and with offloading, and takes the first that fits. Nothing else changes.
  void choose_checkpointing(std::int64_t step);

  // Throws out_of_memory, with the numbers and what would help, when no plan is left (or memory.on_oom is "fail"), and
  // when a step on a card lacks memory of the host.
  // After any Error, a frame's too, all is as before the step.
  void run(std::int64_t step);

  // Gives back all memory that steps took, a graph's too; what an unfinished one has summed up is forgotten.
  void give_back();

  // See Step; nullopt also before the first step.
  std::optional<double> replay_seconds(int times) { return step_ ? step_->replay_seconds(times) : std::nullopt; }

  const MemoryPlan& plan() const { return plan_; }
  void set_plan(const MemoryPlan& plan, std::int64_t next_step);  // of a resumed run

 private:
  Step& current();
  void fit(std::int64_t step, const std::function<void()>& work);
  bool dry_step_fits(std::int64_t step);
  MemoryLimits limits() const;
  void adapt(std::int64_t step, const std::string& why);
  std::string numbers_of(const std::exception& error) const;
  [[noreturn]] void fail_host_memory(std::int64_t step, const std::string& why) const;
  [[noreturn]] void fail_memory(std::int64_t step, const std::string& why) const;

  const Config& config_;
  Network& network_;
  NetworkLoss& loss_;
  StepOps& ops_;
  BatchSource& batches_;
  torch::Device device_;
  int samples_;  // a step
  MemoryPlan plan_;
  std::unique_ptr<Step> step_;  // of the plan; null: to be made
};

}  // namespace reelgrad
