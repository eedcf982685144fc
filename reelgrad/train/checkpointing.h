// Gradient checkpointing: the network is divided into groups of segments; forward keeps only the tensors between
// groups, and backward runs each group again to get what it needs.
#pragma once
#include <torch/types.h>

#include <vector>

#include "reelgrad/nn/discriminators.h"
#include "reelgrad/nn/network.h"

namespace reelgrad {

struct CheckpointPlan {
  int segments = 0;      // groups of consecutive nn segments, as equal as possible; 0: off
  bool offload = false;  // tensors between groups wait for backward in pinned host memory; nothing on the CPU
  bool operator==(const CheckpointPlan&) const = default;
};

// network.forward(input), differentiable, under whatever autocast state the caller has. Backward runs every group but
// the last (whose tensors it needs first) again, with forward's autocast state and random numbers; the generators are
// then where they would be without. Gradients equal those of network.forward() bit for bit where the same operation on
// the same data gives the same bits, but for a weight that is used more than twice or shared under autocast: there they
// are summed in another order or type. More groups than segments() are as many; without gradients it is forward().
// Buffers of the network (running statistics) change once, as without.
// Backward may run once, on any thread. Throws if a segment changes its input in place, or the last gives not one
// tensor.
torch::Tensor forward_checkpointed(Network& network, const torch::Tensor& input, const CheckpointPlan& plan);

// The same for what is no Network. Gradients are handed to `weights`: all that the segments use and that may require
// them, none of which may depend on another.
struct SegmentedPass {
  std::vector<NetworkSegment> segments;
  std::vector<torch::Tensor> weights;
  std::vector<torch::Tensor> buffers;  // that the segments change
};
std::vector<torch::Tensor> run_checkpointed(const SegmentedPass& pass, std::vector<torch::Tensor> inputs,
                                            const CheckpointPlan& plan);

// discriminator.forward(x): one power iteration, whatever is run again.
std::vector<torch::Tensor> forward_checkpointed(Discriminator& discriminator, const torch::Tensor& x,
                                                const CheckpointPlan& plan);

// About the square root of the number of finest segments: there the tensors kept between groups and those of one group
// take the least together. With offload twice as many, since those between groups then cost nothing but their copies,
// and groups of at least four, so that a copy takes no longer than the group beside which it runs.
int automatic_segments(Network& network, bool offload = false);
int automatic_segments(std::size_t finest, bool offload = false);

// Whether a CUDA graph can hold such a step. Copies to host memory are not captured. A network that draws random
// numbers can be, after at least one eager forward_checkpointed() on the same device.
inline bool can_be_captured(const CheckpointPlan& plan) {
  return !plan.offload;
}

}  // namespace reelgrad
