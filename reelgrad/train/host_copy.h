// Tensors of a card that wait in pinned host memory. Copies run on a stream of their own, beside the current one;
// nothing here waits for the card.
#pragma once
#include <ATen/cuda/CUDAEvent.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace reelgrad {

// One tensor's way out and back. Buffers are kept, for the next tensor of the same size,
// until the process ends.
class HostCopy {
 public:
  // Dense tensors of a card; their strides are kept.
  static bool can_copy(const torch::Tensor& tensor);

  // Copies `tensor`, which was complete at `ready`. The current stream waits for the copy, so that from here on the
  // tensor may be freed on it: launch first what the copy shall run beside.
  HostCopy(const torch::Tensor& tensor, at::cuda::CUDAEvent& ready);
  HostCopy(const HostCopy&) = delete;
  HostCopy& operator=(const HostCopy&) = delete;
  ~HostCopy();

  // Begins copying back, once. For backward: call it one piece of work before take().
  void prefetch();

  // The tensor, with its strides and requires_grad, on the current stream. Once.
  torch::Tensor take();

 private:
  torch::TensorOptions options_;
  std::vector<std::int64_t> sizes_, strides_;
  std::size_t bytes_;
  bool requires_grad_;
  torch::Tensor host_;    // bytes; undefined once the copy back was begun
  torch::Tensor device_;  // between prefetch() and take()
  at::cuda::CUDAEvent back_;
};

}  // namespace reelgrad
