// Decoded frames held ready to be cropped, each in its clip's own format, uploaded once.
#pragma once
#include <c10/core/Stream.h>
#include <torch/types.h>

#include <cstddef>
#include <optional>
#include <span>

#include "reelgrad/clip/frame.h"
#include "reelgrad/kernels/gather.h"

namespace reelgrad {

// `slots` pictures of one format and size. The place (card, pinned or plain host memory) never changes what is read
// back. store() from one thread, picture() from another for slots that are complete; a slot is not rewritten while a
// gather that reads it may run: the caller orders that (data/loader.h).
class FramePool {
 public:
  enum class Place { device, pinned_host, host };

  // `device`: the card that gathers read from (cpu for Place::host). A system that refuses to pin memory turns
  // Place::pinned_host into Place::device, with a warning.
  FramePool(VideoFormat format, int width, int height, int slots, Place place, torch::Device device);

  static std::size_t bytes_per_slot(const VideoFormat& format, int width, int height);

  // Copies the picture in; complete when it returns.
  void store(int slot, const FrameView& frame);

  // Readable by kernels::…::gather on the pool's device.
  PictureRef picture(int slot) const;

  int slots() const { return slots_; }
  Place place() const { return place_; }
  const VideoFormat& format() const { return format_; }

 private:
  VideoFormat format_;
  int width_, height_, slots_;
  Place place_;
  torch::Device device_;
  torch::Tensor memory_;                    // uint8 [slots, bytes_per_slot]
  torch::Tensor staging_;                   // uint8 [bytes_per_slot], pinned, for Place::device
  std::optional<c10::Stream> copy_stream_;  // of Place::device
};

// Runs the jobs where `device` says, on its current stream, writing to out pointers on that device.
void gather(const GatherSpec& spec, std::span<const CropJob> jobs, torch::Device device);

}  // namespace reelgrad
