#include "reelgrad/train/read_back.h"

#include <c10/cuda/CUDAStream.h>
#include <torch/torch.h>

#include "reelgrad/frames/pinned_memory.h"

namespace reelgrad {

ReadBack::ReadBack(const torch::Tensor& source) {
  if (source.is_cpu()) {
    host_ = source.clone();
    return;
  }
  host_ = staging_memory(source.nbytes()).view(source.scalar_type()).view(source.sizes());
  host_.copy_(source, /*non_blocking=*/true);
  copied_.emplace(c10::DeviceType::CUDA);
  copied_->record(c10::cuda::getCurrentCUDAStream(source.device().index()));
}

bool ReadBack::ready() const {
  return !copied_ || copied_->query();
}

torch::Tensor ReadBack::wait() const {
  if (!ready()) copied_->synchronize();
  return host_;
}

}  // namespace reelgrad
