#pragma once
#include <torch/types.h>

#include <cstddef>

namespace reelgrad {

// Page-locked host memory of exactly this size, readable by the card in place; an undefined tensor when the system
// grants none. uint8 [bytes].
torch::Tensor try_pinned(std::size_t bytes);

// Host memory for one copy to or from the card, from torch's cache of page-locked blocks; pageable, with one warning,
// when the system grants none. uint8 [bytes]. May be let go while a copy that torch queued still uses it.
torch::Tensor staging_memory(std::size_t bytes);

// The one warning that frames cross to the card through ordinary memory.
void warn_of_pageable_memory(std::size_t bytes);

inline std::byte* bytes_of(const torch::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

}  // namespace reelgrad
