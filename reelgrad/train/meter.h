#pragma once
#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace reelgrad {

// The losses of the steps since the last record, kept on the device: adding never waits, reading does.
class LossMeter {
 public:
  LossMeter(std::int64_t capacity, torch::Device device);

  void add(const torch::Tensor& loss);  // scalar, detached
  std::vector<double> read() const;     // in the order added
  double last() const;                  // NaN when empty
  void clear() { count_ = 0; }

  torch::Tensor state() const;  // float64 [count]
  void load_state(const torch::Tensor& state);

 private:
  torch::Tensor losses_;  // float64 [capacity]
  std::int64_t count_ = 0;
};

}  // namespace reelgrad
