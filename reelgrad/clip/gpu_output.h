#pragma once
#include <VapourSynth4.h>

#include <memory>

#include "reelgrad/clip/frame.h"
#include "reelgrad/clip/gpu_frames.h"
#include "reelgrad/clip/vs_vulkan.h"

namespace reelgrad {

// For a filter's getFrame: new frames in a card's memory, written there by other than Vulkan. Thread-safe.
class GpuOutput {
 public:
  GpuOutput(const VSAPI* api, const vulkan::Api* vk, const VSVideoInfo& info, std::unique_ptr<GpuFrameWriter> writer);

  struct Made {
    VSFrame* frame;  // the caller's
    std::shared_ptr<const GpuCanvas> canvas;
    MutableFrameView view;  // of the canvas
  };
  // A frame with these properties, which nothing has been written to. Throws.
  Made make(const VSFrame* props, VSCore* core) const;
  // All its planes are complete.
  void finish(const VSFrame* frame) const;

 private:
  GpuFrame export_frame(const VSFrame* frame) const;

  const VSAPI* api_;
  const vulkan::Api* vk_;
  VSVideoInfo info_;
  VideoFormat format_;
  std::unique_ptr<GpuFrameWriter> writer_;
};

}  // namespace reelgrad
