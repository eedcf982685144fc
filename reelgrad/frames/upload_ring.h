// Host frames on their way to a card. No torch and no CUDA here: what moves the bytes is behind an interface.
#pragma once
#include <cstddef>
#include <memory>

#include "reelgrad/base/queue.h"
#include "reelgrad/clip/frame.h"
#include "reelgrad/frames/packed_picture.h"

namespace reelgrad {

// Slots of host memory and the copies out of them. Each slot is used by one thread at a time; several threads use
// different slots at once.
class SlotTransport {
 public:
  virtual ~SlotTransport() = default;
  virtual int slots() const = 0;
  virtual std::byte* memory(int slot) = 0;  // aligned to 64 bytes
  // Queues a copy of the slot's first `bytes` to `target`; returns at once.
  virtual void send(int slot, std::byte* target, std::size_t bytes) = 0;
  // Returns when the last copy out of the slot has read it.
  virtual void wait(int slot) = 0;
};

// The slots in turn: a frame is packed into the one whose copy is longest over, and sent. Thread-safe: threads that
// send at the same time pack at the same time.
class UploadRing {
 public:
  explicit UploadRing(SlotTransport& transport);

  // The frame may be freed when it returns; `target` holds it when the transport's copy is done. Throws what the
  // transport throws; the ring stays usable.
  void send(const FrameView& frame, const PackedLayout& layout, std::byte* target);

 private:
  SlotTransport& transport_;
  BoundedQueue<int> free_;
};

}  // namespace reelgrad
