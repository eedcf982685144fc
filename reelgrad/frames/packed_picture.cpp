#include "reelgrad/frames/packed_picture.h"

#include <cuda_runtime_api.h>
#include <torch/torch.h>

#include <cstring>

#include "reelgrad/base/log.h"
#include "reelgrad/base/text.h"

namespace reelgrad {
namespace {

constexpr std::ptrdiff_t kRowAlignment = 64;

std::ptrdiff_t aligned(std::ptrdiff_t bytes) {
  return (bytes + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
}

void copy_rows(const std::byte* from, std::ptrdiff_t from_stride, std::byte* to, std::ptrdiff_t to_stride,
               std::size_t row_bytes, int rows) {
  for (int y = 0; y < rows; ++y) std::memcpy(to + to_stride * y, from + from_stride * y, row_bytes);
}

std::size_t row_bytes(const VideoFormat& format, int width, int plane) {
  return static_cast<std::size_t>(format.plane_width(width, plane)) * format.bytes_per_sample();
}

}  // namespace

PackedLayout::PackedLayout(const VideoFormat& format, int width, int height) {
  for (int p = 0; p < format.planes(); ++p) {
    offset[p] = static_cast<std::ptrdiff_t>(bytes);
    stride[p] = aligned(static_cast<std::ptrdiff_t>(row_bytes(format, width, p)));
    bytes += static_cast<std::size_t>(stride[p]) * format.plane_height(height, p);
  }
}

void pack(const FrameView& view, const PackedLayout& layout, std::byte* block) {
  for (int p = 0; p < view.format.planes(); ++p)
    copy_rows(view.planes[p].data, view.planes[p].stride_bytes, block + layout.offset[p], layout.stride[p],
              row_bytes(view.format, view.width, p), view.format.plane_height(view.height, p));
}

void unpack(const std::byte* block, const PackedLayout& layout, int planes, const MutableFrameView& out) {
  for (int p = 0; p < planes; ++p)
    copy_rows(block + layout.offset[p], layout.stride[p], out.planes[p].data, out.planes[p].stride_bytes,
              row_bytes(out.format, out.width, p), out.format.plane_height(out.height, p));
}

PictureRef packed_ref(const PackedLayout& layout, const std::byte* block, const VideoFormat& format, int width,
                      int height) {
  PictureRef ref{.width = width, .height = height};
  for (int p = 0; p < format.planes(); ++p) {
    ref.plane[p] = block + layout.offset[p];
    ref.stride_bytes[p] = layout.stride[p];
  }
  return ref;
}

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
  log::warn_once("pinning", "page-locked host memory (" + format_bytes(bytes) +
                                ") was refused by the system; frames are copied to the card through ordinary memory, "
                                "which is slower");
  return torch::empty({size}, torch::kUInt8);
}

}  // namespace reelgrad
