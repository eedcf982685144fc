#include "reelgrad/frames/frame_pool.h"

#include <ATen/Parallel.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <utility>

#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/base/text.h"
#include "reelgrad/frames/packed_picture.h"
#include "reelgrad/frames/pinned_memory.h"

namespace reelgrad {
namespace {

constexpr int kSlotsForOnePool = 4;

// uint8 [slots, slot_bytes]
torch::Tensor pool_memory(int slots, std::size_t slot_bytes, torch::Device device) {
  try {
    return torch::empty({slots, static_cast<std::int64_t>(slot_bytes)}, torch::dtype(torch::kUInt8).device(device));
  } catch (const c10::Error&) {
    throw Error(ErrorKind::out_of_memory,
                fmt::format("a pool of {} frames of {} each does not fit into {}: lower data.pool_frames, "
                            "data.segment_frames or data.batch, or make the clip's pictures smaller",
                            slots, format_bytes(slot_bytes),
                            device.is_cuda() ? fmt::format("the memory of {}", device.str()) : "host memory"));
  }
}

}  // namespace

FramePool::FramePool(VideoFormat format, int width, int height, int slots, Place place, torch::Device device,
                     std::shared_ptr<CardUploads> uploads)
    : format_(format),
      largest_{width, height},
      sizes_(static_cast<std::size_t>(slots), largest_),
      place_(place),
      device_(device),
      slot_bytes_(bytes_per_slot(format, width, height)),
      uploads_(std::move(uploads)) {
  const auto slot_bytes = static_cast<std::int64_t>(slot_bytes_);
  if (place_ == Place::host) {
    memory_ = pool_memory(slots, slot_bytes_, torch::kCPU);
    return;
  }
  const c10::cuda::CUDAGuard guard(device_);  // page-locking memory makes a context, on the current card
  if (!uploads_) uploads_ = std::make_shared<CardUploads>(slot_bytes_, kSlotsForOnePool, device_);
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
  memory_ = pool_memory(slots, slot_bytes_, device_);
  // The allocator may hand out memory that kernels queued on this stream still use; copies run on another one.
  c10::cuda::getCurrentCUDAStream(device_.index()).synchronize();
  memory_.record_stream(uploads_->stream());  // nor reuse it, when the pool goes, before the copies are over
}

std::size_t FramePool::bytes_per_slot(const VideoFormat& format, int width, int height) {
  return PackedLayout(format, width, height).bytes;
}

std::byte* FramePool::block(int slot) const {
  return bytes_of(memory_) + static_cast<std::size_t>(slot) * slot_bytes_;
}

PackedLayout FramePool::prepare(int slot, const VideoFormat& format, int width, int height) {
  if (format != format_ || width > largest_.width || height > largest_.height) {
    fail(fmt::format("a frame of {} {}x{} does not fit a pool of {} {}x{}", format.name(), width, height,
                     format_.name(), largest_.width, largest_.height));
  }
  sizes_[static_cast<std::size_t>(slot)] = {width, height};
  return PackedLayout(format, width, height);
}

void FramePool::store(int slot, const FrameView& frame) {
  const PackedLayout layout = prepare(slot, frame.format, frame.width, frame.height);
  if (place_ == Place::device) {
    uploads_->send(frame, layout, block(slot));
  } else {
    pack(frame, layout, block(slot));
  }
}

void FramePool::store(int slot, const DevicePicture& picture) {
  const PackedLayout layout = prepare(slot, picture.format(), picture.width(), picture.height());
  uploads_->send(picture, layout.bytes, block(slot));
}

std::shared_ptr<c10::Event> FramePool::stored() const {
  return uploads_ ? uploads_->mark() : nullptr;
}

void FramePool::overwrite_after(const c10::Event& gathers) {
  if (uploads_) uploads_->after(gathers);
  if (place_ != Place::device) gathers.synchronize();  // the host writes there
}

PictureRef FramePool::picture(int slot) const {
  const Size& size = sizes_[static_cast<std::size_t>(slot)];
  return packed_ref(PackedLayout(format_, size.width, size.height), block(slot), format_, size.width, size.height);
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
