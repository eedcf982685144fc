#pragma once
#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace reelgrad {

// The values of the steps since the last record (losses), summed on the device: adding never waits and may be captured.
// A step with a value that is not finite counts apart: its values are left out.
class LossMeter {
 public:
  LossMeter(std::int64_t values, torch::Device device);  // values a step

  torch::Tensor row() const;  // float64 [values], of that shape and place
  void add(const torch::Tensor& values) { set(with(values)); }
  // Its two halves: what allocates, and what changes the meter.
  torch::Tensor with(const torch::Tensor& values) const;
  void set(const torch::Tensor& next);
  void clear();

  struct Reading {
    std::vector<double> means;                   // of the finite steps; NaN: there were none
    std::int64_t steps = 0;                      // added
    std::int64_t first_bad = -1;                 // index of the first that was not finite; -1: none
    double first_bad_value = 0, last_value = 0;  // of its first value
  };
  torch::Tensor state() const { return state_; }  // float64, on the device; shares storage
  static Reading read(const torch::Tensor& state_on_cpu);
  void load_state(const torch::Tensor& state);

 private:
  torch::Tensor state_;  // [kCounts + values]: counts, then the sums
};

}  // namespace reelgrad
