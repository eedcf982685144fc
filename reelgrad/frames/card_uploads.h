#pragma once
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <torch/types.h>

#include <cstddef>
#include <memory>

#include "reelgrad/clip/frame.h"
#include "reelgrad/frames/packed_picture.h"

namespace reelgrad {

class DevicePicture;

// Host frames to a card: a ring of page-locked slots (pageable, with one warning, where the system grants none), one
// asynchronous copy a frame, all on a stream of its own; events order them with other streams. Thread-safe.
class CardUploads {
 public:
  // `slot_bytes`: of the largest frame.
  CardUploads(std::size_t slot_bytes, int slots, torch::Device device);
  ~CardUploads();  // waits for the copies

  // Frames of at most slot_bytes. Returns when the frame may be freed; several threads send side by side.
  void send(const FrameView& frame, const PackedLayout& layout, std::byte* target);

  // A picture that is on the card already, to `target` on the card or in page-locked memory. It may go on return.
  void send(const DevicePicture& picture, std::size_t bytes, std::byte* target);

  // What is sent after this call waits, on the card, for `event`.
  void after(const c10::Event& event);

  // An event behind everything that was sent before this call.
  std::shared_ptr<c10::Event> mark();

  c10::Stream stream() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reelgrad
