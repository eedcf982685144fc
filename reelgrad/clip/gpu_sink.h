#pragma once
#include <VapourSynth4.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "reelgrad/clip/gpu_input.h"

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

// A filter whose frames carry the properties of the source's and a ticket for what `reader` made of them. The caller
// owns the node. Throws when VapourSynth makes none.
VSNode* make_gpu_sink(const GpuSource& source, std::unique_ptr<GpuFrameReader> reader,
                      std::shared_ptr<PicturesInTransit> pictures);

// The ticket of a frame of such a filter.
std::int64_t ticket_of(const VSFrame* frame, const VSAPI* api);

}  // namespace reelgrad
