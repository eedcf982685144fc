#include "reelgrad/frames/pinned_memory.h"

#include <cuda_runtime_api.h>
#include <torch/torch.h>

#include <string>

#include "reelgrad/base/log.h"
#include "reelgrad/base/text.h"

namespace reelgrad {

// Not torch's pinned allocator: it rounds up to a power of two, which for a pool wastes gigabytes.
torch::Tensor try_pinned(std::size_t bytes) {
  void* memory = nullptr;
  if (cudaHostAlloc(&memory, bytes, cudaHostAllocPortable) != cudaSuccess) {
    cudaGetLastError();  // the failure is dealt with here; the next launch check must not see it
    return {};
  }
  return torch::from_blob(
      memory, {static_cast<std::int64_t>(bytes)}, [](void* block) { cudaFreeHost(block); }, torch::kUInt8);
}

torch::Tensor staging_memory(std::size_t bytes) {
  const auto size = static_cast<std::int64_t>(bytes);
  try {
    return torch::empty({size}, torch::dtype(torch::kUInt8).pinned_memory(true));
  } catch (const c10::Error& error) {
    log::debug(std::string("page-locked memory: ") + error.what_without_backtrace());
  }
  warn_of_pageable_memory(bytes);
  return torch::empty({size}, torch::kUInt8);
}

void warn_of_pageable_memory(std::size_t bytes) {
  log::warn_once("pinning", "page-locked host memory (" + format_bytes(bytes) +
                                ") was refused by the system; frames are copied to the card through ordinary memory, "
                                "which is slower");
}

}  // namespace reelgrad
