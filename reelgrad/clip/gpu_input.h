#pragma once
#include <VapourSynth4.h>

#include <memory>

#include "reelgrad/clip/allocation_map.h"
#include "reelgrad/clip/gpu_frames.h"
#include "reelgrad/clip/vs_vulkan.h"

namespace reelgrad {

struct GpuSource {
  const VSAPI* api;
  const vulkan::Api* vk;
  VSCore* core;
  VSNode* node;  // of frames in the card's memory; stays the caller's
  VideoFormat format;
  int width, height;
};

// For a filter's getFrame: the frames of a clip in a card's memory, as a reader makes pictures of them. Thread-safe.
class GpuInput {
 public:
  // The node must outlive it. Throws when Vulkan cannot be used.
  GpuInput(const GpuSource& source, std::unique_ptr<GpuFrameReader> reader);
  ~GpuInput();  // lets go of every frame

  struct Taken {
    std::shared_ptr<const VSFrame> frame;  // for its properties: it must not go back to VapourSynth
    std::shared_ptr<const GpuPicture> picture;
  };
  // Frame `n`, once for each time that the filter has asked for it. Throws.
  Taken take(int n, VSFrameContext* context);

 private:
  GpuFrame export_frame(const std::shared_ptr<const VSFrame>& frame);
  GpuPlane locate(const std::shared_ptr<const VSFrame>& frame, int plane);

  GpuSource source_;
  vulkan::AddressOf address_of_;
  AllocationMap allocations_;
  std::unique_ptr<GpuFrameReader> reader_;
};

}  // namespace reelgrad
