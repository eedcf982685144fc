#include "reelgrad/frames/card_uploads.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <mutex>
#include <vector>

#include "reelgrad/base/error.h"
#include "reelgrad/frames/gpu_plane_import.h"
#include "reelgrad/frames/pinned_memory.h"
#include "reelgrad/frames/sleeping_event.h"
#include "reelgrad/frames/upload_ring.h"

namespace reelgrad {
namespace {

torch::Tensor slots_memory(std::size_t bytes) {
  torch::Tensor memory = try_pinned(bytes);
  if (memory.defined()) return memory;
  warn_of_pageable_memory(bytes);
  return torch::empty({static_cast<std::int64_t>(bytes)}, torch::kUInt8);
}

class CardTransport : public SlotTransport {
 public:
  CardTransport(std::size_t slot_bytes, int slots, torch::Device device)
      : device_(device),
        slot_bytes_((slot_bytes + 63) / 64 * 64),
        memory_(slots_memory(slot_bytes_ * static_cast<std::size_t>(slots))),
        events_(static_cast<std::size_t>(slots)),
        stream_(c10::cuda::getStreamFromPool(false, device.index())) {}

  int slots() const override { return static_cast<int>(events_.size()); }
  std::byte* memory(int slot) override { return bytes_of(memory_) + static_cast<std::size_t>(slot) * slot_bytes_; }

  void send(int slot, std::byte* target, std::size_t bytes) override {
    const c10::cuda::CUDAGuard guard(device_);
    const std::lock_guard lock(mutex_);
    C10_CUDA_CHECK(cudaMemcpyAsync(target, memory(slot), bytes, cudaMemcpyHostToDevice, stream_.stream()));
    events_[static_cast<std::size_t>(slot)].record(stream_.stream());
  }

  void wait(int slot) override { events_[static_cast<std::size_t>(slot)].wait(); }

  std::size_t slot_bytes() const { return slot_bytes_; }
  c10::cuda::CUDAStream stream() const { return stream_; }
  std::mutex& mutex() { return mutex_; }

 private:
  torch::Device device_;
  std::size_t slot_bytes_;
  torch::Tensor memory_;
  std::vector<SleepingEvent> events_;
  c10::cuda::CUDAStream stream_;
  std::mutex mutex_;  // a copy and its event are queued together
};

}  // namespace

struct CardUploads::Impl {
  CardTransport transport;
  UploadRing ring;
  torch::Device device;

  Impl(std::size_t slot_bytes, int slots, torch::Device on)
      : transport(slot_bytes, slots, on), ring(transport), device(on) {}
};

CardUploads::CardUploads(std::size_t slot_bytes, int slots, torch::Device device) {
  const c10::cuda::CUDAGuard guard(device);  // page-locked memory and events belong to the current card's context
  impl_ = std::make_unique<Impl>(slot_bytes, slots, device);
}

CardUploads::~CardUploads() {
  // A card that has failed has told its user already.
  if (cudaStreamSynchronize(impl_->transport.stream().stream()) != cudaSuccess) cudaGetLastError();
}

void CardUploads::send(const FrameView& frame, const PackedLayout& layout, std::byte* target) {
  if (layout.bytes > impl_->transport.slot_bytes()) {
    fail(fmt::format("a frame of {} bytes does not fit a slot of {}", layout.bytes, impl_->transport.slot_bytes()));
  }
  impl_->ring.send(frame, layout, target);
}

void CardUploads::send(const DevicePicture& picture, std::size_t bytes, std::byte* target) {
  const c10::cuda::CUDAGuard guard(impl_->device);
  const c10::cuda::CUDAStream stream = impl_->transport.stream();
  const std::lock_guard lock(impl_->transport.mutex());
  picture.wait_on(stream);
  C10_CUDA_CHECK(cudaMemcpyAsync(target, picture.block().const_data_ptr(), bytes, cudaMemcpyDefault, stream.stream()));
}

void CardUploads::after(const c10::Event& event) {
  const c10::cuda::CUDAGuard guard(impl_->device);
  const std::lock_guard lock(impl_->transport.mutex());
  event.block(impl_->transport.stream());
}

std::shared_ptr<c10::Event> CardUploads::mark() {
  const c10::cuda::CUDAGuard guard(impl_->device);
  auto event = std::make_shared<c10::Event>(impl_->device.type());
  const std::lock_guard lock(impl_->transport.mutex());
  event->record(impl_->transport.stream());
  return event;
}

c10::Stream CardUploads::stream() const {
  return impl_->transport.stream();
}

}  // namespace reelgrad
