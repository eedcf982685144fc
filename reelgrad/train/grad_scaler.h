#pragma once
#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "reelgrad/nn/weights.h"

namespace reelgrad {

// Loss scaling for fp16, with the rule of torch.amp.GradScaler: gradients that are not finite skip the update and halve
// the scale; `growth_interval` clean updates in a row double it. All state lies on the device; only counters() waits.
class GradScaler {
 public:
  struct Options {
    double initial_scale = 65536;
    double growth = 2;
    double backoff = 0.5;
    std::int64_t growth_interval = 2000;
  };

  GradScaler(torch::Device device, const Options& options);

  torch::Tensor scale(const torch::Tensor& loss) const;

  // Divides the gradients by the scale in place and sets found_inf().
  void unscale(const std::vector<torch::Tensor>& gradients);

  const torch::Tensor& found_inf() const { return found_inf_; }  // float32 [1]: 1 when any gradient is not finite
  const torch::Tensor& updates() const { return updates_; }      // int64 [1]: steps that were not skipped

  // After the optimizer's step: adapts the scale and counts.
  void update();

  struct Counters {
    double scale = 0;
    std::int64_t updates = 0;
    std::int64_t skipped = 0;
    std::int64_t skipped_in_a_row = 0;
  };
  Counters counters() const;

  // For a run that was trained without loss scaling so far.
  void set_updates(std::int64_t updates) { updates_.fill_(updates); }

  NamedTensors state() const;  // shares storage
  void load_state(const NamedTensors& state);

 private:
  Options options_;
  torch::Tensor scale_, growth_tracker_, found_inf_;
  torch::Tensor updates_, skipped_, in_a_row_;  // int64 [1]
};

}  // namespace reelgrad
