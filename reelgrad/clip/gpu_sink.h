#pragma once
#include <VapourSynth4.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "reelgrad/clip/gpu_frames.h"
#include "reelgrad/clip/vs_vulkan.h"

namespace reelgrad {

// Pictures on their way from the filter that makes them to whoever asked: VapourSynth carries a frame in host memory
// that holds only the properties and a ticket. Thread-safe.
class PicturesInTransit {
 public:
  std::int64_t leave(std::shared_ptr<const GpuPicture> picture);
  // nullptr when it was taken before: VapourSynth may answer two requests with one frame.
  std::shared_ptr<const GpuPicture> take(std::int64_t ticket);
  std::size_t size() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::int64_t, std::shared_ptr<const GpuPicture>> pictures_;
  std::int64_t next_ticket_ = 1;
};

struct GpuSource {
  const VSAPI* api;
  const vulkan::Api* vk;
  VSCore* core;
  VSNode* node;  // of frames in the card's memory; stays the caller's
  VideoFormat format;
  int width, height;
};

// A filter whose frames carry the properties of the source's and a ticket for what `reader` made of them. The caller
// owns the node. nullptr when VapourSynth makes none.
VSNode* make_gpu_sink(const GpuSource& source, std::unique_ptr<GpuFrameReader> reader,
                      std::shared_ptr<PicturesInTransit> pictures);

// For a filter's getFrame: frame `n` of the source, which it has asked for, in memory that can be shared; to be taken
// once for each time it was asked for. It is read only and never goes back to VapourSynth. Throws.
std::shared_ptr<const VSFrame> take_exportable(const GpuSource& source, int n, VSFrameContext* context);

// Such a frame as a reader takes it. `source` must live until the reader has returned. Throws.
GpuFrame export_frame(const GpuSource& source, std::shared_ptr<const VSFrame> frame);

// The ticket of a frame of such a filter.
std::int64_t ticket_of(const VSFrame* frame, const VSAPI* api);

}  // namespace reelgrad
