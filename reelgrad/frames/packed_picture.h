// A picture as one block of bytes: how frames lie in the pool and cross to the card.
#pragma once
#include <torch/types.h>

#include "reelgrad/clip/frame.h"
#include "reelgrad/kernels/gather.h"

namespace reelgrad {

// Rows of each plane `stride` bytes apart, planes one after the other. Strides and offsets are multiples of 64 bytes.
struct PackedLayout {
  std::ptrdiff_t offset[3] = {};
  std::ptrdiff_t stride[3] = {};
  std::size_t bytes = 0;

  PackedLayout(const VideoFormat& format, int width, int height);
};

// Rows of `view` into `block`, which has its layout.
void pack(const FrameView& view, const PackedLayout& layout, std::byte* block);
// The first `planes` planes of `block` into `out`.
void unpack(const std::byte* block, const PackedLayout& layout, int planes, const MutableFrameView& out);

PictureRef packed_ref(const PackedLayout& layout, const std::byte* block, const VideoFormat& format, int width,
                      int height);

// Page-locked host memory of exactly this size, readable by the card in place; an undefined tensor when the system
// grants none. uint8 [bytes].
torch::Tensor try_pinned(std::size_t bytes);

// Host memory for one copy to or from the card, from torch's cache of page-locked blocks; pageable, with one warning,
// when the system grants none. uint8 [bytes]. May be let go while a copy that torch queued still uses it.
torch::Tensor staging_memory(std::size_t bytes);

inline std::byte* bytes_of(const torch::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

}  // namespace reelgrad
