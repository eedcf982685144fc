// AdamW and Adam by PyTorch's fused ops (one launch for all parameters, on the CPU too), any floating dtype.
#pragma once
#include <torch/nn/module.h>

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "reelgrad/config/config.h"
#include "reelgrad/nn/weights.h"
#include "reelgrad/train/snapshot_state.h"

namespace reelgrad {

// A number, or a float32 tensor [1] on the device where the host doesn't know how many updates were skipped.
using LearningRate = std::variant<double, torch::Tensor>;

class Optimizer {
 public:
  // For the network's parameters that require a gradient; they must be where and as (device, dtype, memory format) they
  // are going to stay.
  Optimizer(const OptimizerConfig& config, const torch::nn::Module& network);

  void zero_grad();                              // drops the gradients
  std::vector<torch::Tensor> gradients() const;  // of the parameters that have one

  // `found_inf` (float32 [1] on the device; see GradScaler): 1 makes the whole update a no-op.
  void step(const LearningRate& lr, const std::optional<torch::Tensor>& found_inf = std::nullopt);

  NamedTensors state() const;  // shares storage
  void load_state(const NamedTensors& state);

 private:
  struct Slot {
    std::string name;
    torch::Tensor parameter, exp_avg, exp_avg_sq;
  };

  OptimizerConfig config_;
  std::vector<Slot> slots_;
  torch::Tensor updates_;  // float32 [], on the device: the bias correction's t
};

// Scales the gradients so that their joint 2-norm is at most `max_norm`, as torch.nn.utils.clip_grad_norm_ does,
// without waiting for the card.
void clip_by_norm(const std::vector<torch::Tensor>& gradients, double max_norm);

}  // namespace reelgrad
