// A picture as one block of bytes: how frames lie in the pool and cross to the card. No torch here.
#pragma once
#include <cstddef>

#include "reelgrad/clip/frame.h"
#include "reelgrad/kernels/gather.h"

namespace reelgrad {

// Rows of each plane `stride` bytes apart, planes one after the other. Strides and offsets are multiples of 64 bytes.
struct PackedLayout {
  std::ptrdiff_t offset[3] = {};
  std::ptrdiff_t stride[3] = {};
  std::size_t bytes = 0;

  PackedLayout() = default;
  PackedLayout(const VideoFormat& format, int width, int height);
};

// Rows of `view` into `block`, which has its layout and is aligned to 64 bytes. The block's bytes go past the caches:
// whoever reads it next is the card, or this core much later.
void pack(const FrameView& view, const PackedLayout& layout, std::byte* block);
// The first `planes` planes of `block` into `out`.
void unpack(const std::byte* block, const PackedLayout& layout, int planes, const MutableFrameView& out);

PictureRef packed_ref(const PackedLayout& layout, const std::byte* block, const VideoFormat& format, int width,
                      int height);

}  // namespace reelgrad
