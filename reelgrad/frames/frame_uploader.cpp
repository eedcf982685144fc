#include "reelgrad/frames/frame_uploader.h"

#include <c10/core/Event.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/torch.h>

#include <utility>
#include <vector>

#include "reelgrad/base/error.h"
#include "reelgrad/base/queue.h"
#include "reelgrad/frames/card_uploads.h"
#include "reelgrad/frames/convert.h"
#include "reelgrad/frames/frame_pool.h"
#include "reelgrad/frames/packed_picture.h"
#include "reelgrad/frames/pinned_memory.h"

namespace reelgrad {

struct FrameUploader::Impl {
  VideoFormat format;
  int width, height;
  torch::Device device;
  PackedLayout layout;
  torch::Tensor blocks;  // uint8 [in_flight, layout.bytes], on the card; outlives the copies that `uploads` waits for
  CardUploads uploads;
  std::vector<std::shared_ptr<c10::Event>> read;  // by block: the conversion that reads it; null: none yet
  BoundedQueue<int> free;                         // blocks, the longest unused first

  Impl(const VideoFormat& clip_format, int clip_width, int clip_height, torch::Device on, int in_flight)
      : format(clip_format),
        width(clip_width),
        height(clip_height),
        device(on),
        layout(format, width, height),
        blocks(torch::empty({in_flight, static_cast<std::int64_t>(layout.bytes)},
                            torch::dtype(torch::kUInt8).device(device))),
        uploads(layout.bytes, in_flight, device),
        read(static_cast<std::size_t>(in_flight)),
        free(static_cast<std::size_t>(in_flight)) {
    for (int block = 0; block < in_flight; ++block) free.push(block);
    // The allocator may hand out memory that kernels queued on this stream still use; copies run on another one.
    c10::cuda::getCurrentCUDAStream(device.index()).synchronize();
  }

  torch::Tensor convert(int block, const FrameView& frame, const ColorSpec& color, NetworkColor to,
                        torch::ScalarType type) {
    std::shared_ptr<c10::Event>& last = read[static_cast<std::size_t>(block)];
    std::byte* memory = bytes_of(blocks) + static_cast<std::size_t>(block) * layout.bytes;
    if (last) uploads.after(*last);
    uploads.send(frame, layout, memory);
    const c10::cuda::CUDAGuard guard(device);
    const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(device.index());
    uploads.mark()->block(stream);
    torch::Tensor image = torch::empty({channels(to), height, width}, torch::dtype(type).device(device));
    const CropJob job{.source = packed_ref(layout, memory, format, width, height),
                      .width = width,
                      .height = height,
                      .out = image_ref(image)};
    gather({.format = format, .color = color, .to = to, .element = element_type(type).value()}, {&job, 1}, device);
    last = std::make_shared<c10::Event>(device.type());
    last->record(stream);
    return image;
  }
};

FrameUploader::FrameUploader(const VideoFormat& format, int width, int height, torch::Device device, int in_flight)
    : impl_(std::make_unique<Impl>(format, width, height, device, in_flight)) {}

FrameUploader::~FrameUploader() {
  try {
    for (const auto& event : impl_->read) {
      if (event) event->synchronize();
    }
  } catch (const c10::Error&) {
    // A card that has failed: its user has the error already.
  }
}

bool FrameUploader::takes(const FrameView& frame) const {
  return frame.format == impl_->format && frame.width == impl_->width && frame.height == impl_->height;
}

torch::Tensor FrameUploader::to_tensor(const FrameView& frame, const ColorSpec& color, NetworkColor to,
                                       torch::ScalarType type) {
  if (!takes(frame)) fail("a frame of another format or size than the uploader's");
  const int block = *impl_->free.pop();
  try {
    torch::Tensor image = impl_->convert(block, frame, color, to, type);
    impl_->free.push(block);
    return image;
  } catch (...) {
    impl_->free.push(block);
    throw;
  }
}

}  // namespace reelgrad
