#include "reelgrad/clip/gpu_output.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "reelgrad/base/error.h"
#include "reelgrad/clip/vs_convert.h"

namespace reelgrad {
namespace {

Descriptor export_new_plane(const vulkan::Api& vk, const VSFrame* frame, int plane, MemoryPlace& place) {
  vulkan::VSVulkanExportedMemory memory{};
  std::array<char, 512> error{};
  if (vk.exportGPUPlane(frame, plane, &memory, error.data(), error.size()) != 0) {
    fail(fmt::format("VapourSynth cannot export plane {} of a new frame: {}", plane, error.data()));
  }
  place = {memory.memoryId, memory.memorySize, memory.offset};
  return Descriptor(static_cast<int>(memory.handle));
}

}  // namespace

GpuOutput::GpuOutput(const VSAPI* api, const vulkan::Api* vk, const VSVideoInfo& info,
                     std::unique_ptr<GpuFrameWriter> writer)
    : api_(api), vk_(vk), info_(info), format_(to_video_format(info.format).value()), writer_(std::move(writer)) {}

GpuOutput::Made GpuOutput::make(const VSFrame* props, VSCore* core) const {
  VSFrame* frame = vk_->newGPUVideoFrame(&info_.format, info_.width, info_.height, props, core);
  if (!frame) fail("VapourSynth cannot make a frame on the card");
  try {
    std::shared_ptr<const GpuCanvas> canvas = writer_->open(export_frame(frame));
    const MutableFrameView view{.format = format_, .width = info_.width, .height = info_.height, .gpu = canvas.get()};
    return {frame, std::move(canvas), view};
  } catch (...) {
    api_->freeFrame(frame);
    throw;
  }
}

// Who wrote has waited for it: there is nothing that VapourSynth would wait for.
void GpuOutput::finish(const VSFrame* frame) const {
  for (int plane = 0; plane < format_.planes(); ++plane) vk_->setGPUPlaneProducer(frame, plane, nullptr, 0);
}

// Each plane is exported: that is how VapourSynth lets go of it. The descriptors are for the writer, who opens an
// allocation once.
GpuFrame GpuOutput::export_frame(const VSFrame* frame) const {
  GpuFrame exported{.format = format_, .width = info_.width, .height = info_.height};
  auto memory = std::make_shared<std::array<Descriptor, 3>>();
  for (int plane = 0; plane < format_.planes(); ++plane) {
    GpuPlane& place = exported.planes[plane];
    (*memory)[plane] = export_new_plane(*vk_, frame, plane, place.memory);
    place.stride_bytes = api_->getStride(frame, plane);
  }
  exported.export_memory = [memory](int plane) { return std::exchange((*memory)[plane], Descriptor()); };
  return exported;
}

}  // namespace reelgrad
