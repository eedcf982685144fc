#pragma once
#include <torch/types.h>

#include <memory>

#include "reelgrad/clip/frame.h"
#include "reelgrad/kernels/color.h"

namespace reelgrad {

// Whole host frames of one format and size to tensors on a card, several on their way at once: each crosses in its own
// format, by one asynchronous copy beside the computing streams, and becomes samples on the card. Thread-safe.
class FrameUploader {
 public:
  // `in_flight`: frames that are copied ahead of their conversion.
  FrameUploader(const VideoFormat& format, int width, int height, torch::Device device, int in_flight = 4);
  ~FrameUploader();

  bool takes(const FrameView& frame) const;

  // [C, H, W] of `type` (float32, half or bfloat16), not clamped, on the calling thread's current stream, which waits
  // for the copy. The frame may be freed on return.
  torch::Tensor to_tensor(const FrameView& frame, const ColorSpec& color, NetworkColor to,
                          torch::ScalarType type = torch::kFloat32);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reelgrad
