#include "reelgrad/train/host_copy.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/torch.h>

#include <map>
#include <mutex>
#include <utility>

#include "reelgrad/base/error.h"

namespace reelgrad {
namespace {

// All copies of one card are on one stream, in order. So a buffer may be handed on as soon as its copy back is
// launched: what writes to it next comes later on the same stream.
class CopyLane {
 public:
  explicit CopyLane(torch::DeviceIndex device)
      : stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, device)) {}

  c10::cuda::CUDAStream stream() const { return stream_; }

  torch::Tensor take_buffer(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    std::vector<torch::Tensor>& buffers = free_[bytes];
    if (buffers.empty()) return torch::empty({static_cast<std::int64_t>(bytes)}, pinned_bytes());
    torch::Tensor buffer = std::move(buffers.back());
    buffers.pop_back();
    return buffer;
  }

  void give_back(torch::Tensor buffer) {
    const std::lock_guard lock(mutex_);
    free_[buffer.nbytes()].push_back(std::move(buffer));
  }

 private:
  static torch::TensorOptions pinned_bytes() { return torch::TensorOptions(torch::kByte).pinned_memory(true); }

  c10::cuda::CUDAStream stream_;
  std::mutex mutex_;
  std::map<std::size_t, std::vector<torch::Tensor>> free_;  // by bytes
};

CopyLane& lane_of(torch::Device device) {
  struct Lanes {
    std::mutex mutex;
    std::map<torch::DeviceIndex, CopyLane> list;
  };
  static auto& lanes = *new Lanes;  // never destroyed: pinned memory must not outlive the driver
  const std::lock_guard lock(lanes.mutex);
  return lanes.list.try_emplace(device.index(), device.index()).first->second;
}

}  // namespace

HostCopy::HostCopy(const torch::Tensor& tensor, at::cuda::CUDAEvent& ready)
    : options_(tensor.options()),
      sizes_(tensor.sizes().vec()),
      strides_(tensor.strides().vec()),
      bytes_(tensor.nbytes()),
      requires_grad_(tensor.requires_grad()) {
  TORCH_CHECK(can_copy(tensor), "only dense tensors of a card can wait in host memory");
  CopyLane& lane = lane_of(tensor.device());
  host_ = lane.take_buffer(bytes_);
  ready.block(lane.stream());
  C10_CUDA_CHECK(cudaMemcpyAsync(host_.mutable_data_ptr(), tensor.const_data_ptr(), bytes_, cudaMemcpyDeviceToHost,
                                 lane.stream()));
  at::cuda::CUDAEvent copied;
  copied.record(lane.stream());
  copied.block(c10::cuda::getCurrentCUDAStream(tensor.device().index()));
}

bool HostCopy::can_copy(const torch::Tensor& tensor) {
  return tensor.is_cuda() && tensor.is_non_overlapping_and_dense();
}

HostCopy::~HostCopy() {
  if (host_.defined()) lane_of(options_.device()).give_back(std::move(host_));
  // Not taken, as after an error: the copy may still be writing.
  if (device_.defined()) device_.record_stream(lane_of(options_.device()).stream());
}

void HostCopy::prefetch() {
  if (!host_.defined()) return;
  CopyLane& lane = lane_of(options_.device());
  device_ = at::empty_strided(sizes_, strides_, options_.requires_grad(false));
  at::cuda::CUDAEvent usable;  // its memory may have had another use on the current stream until now
  usable.record(c10::cuda::getCurrentCUDAStream(options_.device().index()));
  usable.block(lane.stream());
  C10_CUDA_CHECK(cudaMemcpyAsync(device_.mutable_data_ptr(), host_.const_data_ptr(), bytes_, cudaMemcpyHostToDevice,
                                 lane.stream()));
  back_.record(lane.stream());
  lane.give_back(std::move(host_));
}

torch::Tensor HostCopy::take() {
  prefetch();
  if (!device_.defined()) fail("checkpointing with offload: backward runs once through the same graph");
  back_.block(c10::cuda::getCurrentCUDAStream(options_.device().index()));
  torch::Tensor tensor = std::exchange(device_, {});
  tensor.set_requires_grad(requires_grad_);
  return tensor;
}

}  // namespace reelgrad
