// How a step is fitted into memory. Plans change the memory and time of a step, and its rounding, never its samples.
#pragma once
#include <torch/nn/module.h>

#include <optional>
#include <string>
#include <vector>

#include "reelgrad/config/config.h"
#include "reelgrad/nn/network.h"
#include "reelgrad/train/checkpointing.h"

namespace reelgrad {

struct MemoryPlan {
  bool frames_on_host = false;  // the pool of decoded frames
  int parts = 1;                // micro-batches a step
  CheckpointPlan checkpointing;
  bool operator==(const MemoryPlan&) const = default;
};

// What may still be changed.
struct MemoryLimits {
  int samples = 1;                // a step
  bool batch_statistics = false;  // a network that normalises by its batch: other parts would be another training
  bool frames_on_card = false;
  int segments = 0;  // automatic_segments() of the network, 2 where others go with it; below 2: nothing is gained
  int offloaded_segments = 0;  // the same with offloading
};

bool has_batch_statistics(const torch::nn::Module& network);

// The plan that the configuration asks for; "auto" begins without checkpointing.
MemoryPlan first_plan(const Config& config, Network& network);

// The next rung of the ladder: frames to host memory, twice as many micro-batches, checkpointing, its offloading.
// nullopt: nothing is left to try.
std::optional<MemoryPlan> next_plan(const MemoryPlan& plan, const MemoryLimits& limits);

// What memory.checkpointing = "auto" tries, in this order.
std::vector<CheckpointPlan> automatic_checkpointing(const MemoryLimits& limits);

// "2 micro-batches of 8, 6 segments", for the log.
std::string describe(const MemoryPlan& plan, int samples);

torch::Tensor to_tensor(const MemoryPlan& plan);  // int64 [4], for checkpoints
MemoryPlan memory_plan(const torch::Tensor& tensor);

}  // namespace reelgrad
