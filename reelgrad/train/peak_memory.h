// How much memory tensors take at most.
#pragma once
#include <torch/types.h>

#include <cstdint>
#include <memory>

namespace reelgrad {

// From its construction on: the most bytes that tensors of `device` held at once, beyond those that they held at the
// start. On a card all threads count and the allocator's own peak is reset; on the CPU this thread's tensors, and those
// of backward passes that it runs. Not to be nested.
class PeakMemory {
 public:
  explicit PeakMemory(torch::Device device);
  PeakMemory(const PeakMemory&) = delete;
  PeakMemory& operator=(const PeakMemory&) = delete;
  ~PeakMemory();

  std::int64_t bytes() const;

 private:
  struct CpuCounter;

  torch::Device device_;
  std::int64_t bytes_before_ = 0;
  std::unique_ptr<CpuCounter> cpu_;  // null on a card
};

}  // namespace reelgrad
