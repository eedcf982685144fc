// Decoded frames held ready to be cropped, each in its clip's own format, uploaded once.
#pragma once
#include <c10/core/Event.h>
#include <torch/types.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "reelgrad/clip/frame.h"
#include "reelgrad/frames/card_uploads.h"
#include "reelgrad/frames/gpu_plane_import.h"
#include "reelgrad/kernels/gather.h"

namespace reelgrad {

// `slots` pictures of one format, of at most one size. The place (card, pinned or plain host memory) never changes what
// is read back. Threads may store() into different slots side by side. A slot is not rewritten while a gather that
// reads it may run, and not read before it is complete: the caller orders both with overwrite_after() and stored()
// (data/segment_decoder.cpp).
class FramePool {
 public:
  enum class Place { device, pinned_host, host };

  // `uploads`: the way to the card, shared with other pools, with slots for this pool's frames; null: one of its own.
  // `device`: the card that gathers read from (cpu for Place::host). A system that refuses to pin memory turns
  // Place::pinned_host into Place::device, with a warning.
  FramePool(VideoFormat format, int width, int height, int slots, Place place, torch::Device device,
            std::shared_ptr<CardUploads> uploads = nullptr);

  static std::size_t bytes_per_slot(const VideoFormat& format, int width, int height);

  // Copies the picture in; the frame may be freed on return. A copy from or to the card is queued: see stored().
  void store(int slot, const FrameView& frame);
  void store(int slot, const DevicePicture& picture);

  // An event behind all that was stored so far; null on the CPU, where it is complete.
  std::shared_ptr<c10::Event> stored() const;

  // What is stored from now on comes after `gathers`: on the card by order of streams, else by waiting here.
  void overwrite_after(const c10::Event& gathers);

  // Readable by kernels::…::gather on the pool's device.
  PictureRef picture(int slot) const;

  int slots() const { return static_cast<int>(sizes_.size()); }
  Place place() const { return place_; }
  const VideoFormat& format() const { return format_; }

 private:
  struct Size {
    int width = 0, height = 0;
  };
  std::byte* block(int slot) const;
  PackedLayout prepare(int slot, const VideoFormat& format, int width, int height);

  VideoFormat format_;
  Size largest_;
  std::vector<Size> sizes_;  // of the pictures in the slots
  Place place_;
  torch::Device device_;
  std::size_t slot_bytes_;
  torch::Tensor memory_;                  // uint8 [slots, slot_bytes]
  std::shared_ptr<CardUploads> uploads_;  // null on the CPU
};

// Runs the jobs where `device` says, on its current stream, writing to out pointers on that device.
void gather(const GatherSpec& spec, std::span<const CropJob> jobs, torch::Device device);

}  // namespace reelgrad
