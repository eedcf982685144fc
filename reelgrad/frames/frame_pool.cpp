#include "reelgrad/frames/frame_pool.h"

#include <ATen/Parallel.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/base/text.h"
#include "reelgrad/frames/packed_picture.h"

namespace reelgrad {
namespace {

c10::cuda::CUDAStream as_cuda(const c10::Stream& stream) {
  return c10::cuda::CUDAStream(stream);
}

}  // namespace

FramePool::FramePool(VideoFormat format, int width, int height, int slots, Place place, torch::Device device)
    : format_(format), width_(width), height_(height), slots_(slots), place_(place), device_(device) {
  const auto slot_bytes = static_cast<std::int64_t>(bytes_per_slot(format, width, height));
  if (place_ == Place::host) {
    memory_ = torch::empty({slots, slot_bytes}, torch::kUInt8);
    return;
  }
  const c10::cuda::CUDAGuard guard(device_);  // page-locking memory makes a context, on the current card
  if (place_ == Place::pinned_host) {
    memory_ = try_pinned(static_cast<std::size_t>(slots * slot_bytes));
    if (memory_.defined()) {
      memory_ = memory_.view({slots, slot_bytes});
      return;
    }
    log::warn_once("pinned-pool", fmt::format("page-locked host memory for {} frames ({}) was refused by the system; "
                                              "they are held on the card",
                                              slots, format_bytes(static_cast<std::uintmax_t>(slots * slot_bytes))));
    place_ = Place::device;
  }
  memory_ = torch::empty({slots, slot_bytes}, torch::dtype(torch::kUInt8).device(device_));
  staging_ = staging_memory(static_cast<std::size_t>(slot_bytes));
  copy_stream_ = c10::cuda::getStreamFromPool(false, device_.index()).unwrap();
  // The allocator may hand out memory that kernels queued on this stream still use; copies run on another one.
  c10::cuda::getCurrentCUDAStream(device_.index()).synchronize();
}

std::size_t FramePool::bytes_per_slot(const VideoFormat& format, int width, int height) {
  return PackedLayout(format, width, height).bytes;
}

void FramePool::store(int slot, const FrameView& frame) {
  if (frame.format != format_ || frame.width != width_ || frame.height != height_)
    fail(fmt::format("a frame of {} {}x{} does not fit a pool of {} {}x{}", frame.format.name(), frame.width,
                     frame.height, format_.name(), width_, height_));
  const PackedLayout layout(format_, width_, height_);
  const torch::Tensor target = memory_[slot];
  if (place_ != Place::device) return pack(frame, layout, bytes_of(target));
  pack(frame, layout, bytes_of(staging_));
  const c10::cuda::CUDAStream stream = as_cuda(*copy_stream_);
  const c10::cuda::CUDAStreamGuard guard(stream);
  target.copy_(staging_, /*non_blocking=*/true);
  stream.synchronize();
}

PictureRef FramePool::picture(int slot) const {
  const PackedLayout layout(format_, width_, height_);
  return packed_ref(layout, bytes_of(memory_) + static_cast<std::size_t>(slot) * layout.bytes, format_, width_,
                    height_);
}

void gather(const GatherSpec& spec, std::span<const CropJob> jobs, torch::Device device) {
  if (device.is_cuda()) {
    const c10::cuda::CUDAGuard guard(device);
    return cuda::gather(spec, jobs, c10::cuda::getCurrentCUDAStream(device.index()).stream());
  }
  at::parallel_for(0, static_cast<std::int64_t>(jobs.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    cpu::gather(spec, jobs.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
  });
}

}  // namespace reelgrad
