#pragma once
#include <ATen/cuda/CUDAGraph.h>

#include <functional>
#include <memory>

namespace reelgrad {

// A sequence of launches on the current stream (not the default one), recorded once and replayed with one call. Memory
// that the work allocates is the graph's own; graphs of one pool run one after the other.
class CapturedWork {
 public:
  // Records without running. What the work throws comes through, and a failure to record as c10::Error; then allocator,
  // generators and stream are as before.
  CapturedWork(const at::cuda::MempoolId_t& pool, const std::function<void()>& work);
  CapturedWork(const CapturedWork&) = delete;
  CapturedWork& operator=(const CapturedWork&) = delete;
  ~CapturedWork();

  void replay();

 private:
  class Graph;
  std::unique_ptr<Graph> graph_;
};

}  // namespace reelgrad
