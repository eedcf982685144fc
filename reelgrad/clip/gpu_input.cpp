#include "reelgrad/clip/gpu_input.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "reelgrad/base/error.h"

namespace reelgrad {
namespace {

using ErrorText = std::array<char, 512>;

Descriptor export_semaphore(const GpuSource& source, std::uint64_t semaphore) {
  vulkan::VSVulkanExportedSemaphore exported{};
  ErrorText error{};
  if (source.vk->exportGPUSemaphore(source.core, reinterpret_cast<vulkan::VkSemaphore>(semaphore), &exported,
                                    error.data(), error.size()) != 0) {
    fail(fmt::format("VapourSynth cannot export a semaphore: {}", error.data()));
  }
  return Descriptor(static_cast<int>(exported.handle));
}

// The plane's allocation, and where it lies in that.
Descriptor export_plane(const GpuSource& source, const VSFrame* frame, int plane, MemoryPlace& place) {
  vulkan::VSVulkanExportedMemory memory{};
  ErrorText error{};
  if (source.vk->exportGPUPlane(frame, plane, &memory, error.data(), error.size()) != 0) {
    fail(fmt::format("VapourSynth cannot export plane {}: {}", plane, error.data()));
  }
  place = {memory.memoryId, memory.memorySize, memory.offset};
  return Descriptor(static_cast<int>(memory.handle));
}

std::shared_ptr<const VSFrame> take_exportable(const GpuSource& source, int n, VSFrameContext* context) {
  ErrorText error{};
  const VSFrame* frame = source.vk->getExportableFrameFilter(n, source.node, context, error.data(), error.size());
  if (!frame) fail(fmt::format("VapourSynth cannot hand the frame over: {}", error.data()));
  return {frame, [api = source.api](const VSFrame* owned) { api->freeFrame(owned); }};
}

vulkan::AddressOf addresses_in(const GpuSource& source) {
  vulkan::VSVulkanCoreHandles handles{};
  ErrorText error{};
  if (source.vk->getVulkanHandles(source.core, &handles, error.data(), error.size()) != 0) {
    fail(fmt::format("Vulkan cannot be used: {}", error.data()));
  }
  return vulkan::AddressOf(handles);
}

}  // namespace

GpuInput::GpuInput(const GpuSource& source, std::unique_ptr<GpuFrameReader> reader)
    : source_(source), address_of_(addresses_in(source)), reader_(std::move(reader)) {}

GpuInput::~GpuInput() = default;

GpuInput::Taken GpuInput::take(int n, VSFrameContext* context) {
  std::shared_ptr<const VSFrame> frame = take_exportable(source_, n, context);
  auto picture = reader_->read(export_frame(frame));
  return {std::move(frame), std::move(picture)};
}

GpuFrame GpuInput::export_frame(const std::shared_ptr<const VSFrame>& frame) {
  GpuFrame exported{.format = source_.format, .width = source_.width, .height = source_.height};
  for (int plane = 0; plane < exported.format.planes(); ++plane) exported.planes[plane] = locate(frame, plane);
  exported.export_memory = [this, of = frame.get()](int plane) {
    MemoryPlace known;
    return export_plane(source_, of, plane, known);
  };
  exported.export_semaphore = [this](std::uint64_t semaphore) { return export_semaphore(source_, semaphore); };
  exported.owner = frame;
  return exported;
}

// Exports wait for each other in the driver: three a frame, and seven clips side by side spent 4 ms a frame with them
// (docs/benchmarks.md). So only a few planes of an allocation are exported, and the addresses of the others say where
// they lie.
GpuPlane GpuInput::locate(const std::shared_ptr<const VSFrame>& frame, int plane) {
  vulkan::VSVulkanPlaneInfo info{};
  if (source_.vk->getGPUPlane(frame.get(), plane, &info) != 0) fail(fmt::format("plane {} is not on the card", plane));
  const std::uint64_t address = address_of_(info.buffer);
  std::optional<MemoryPlace> place = allocations_.find(address, info.bufferSize);
  if (!place) {
    export_plane(source_, frame.get(), plane, place.emplace());
    allocations_.learn(address, *place, frame);
  }
  return {.memory = *place,
          .stride_bytes = source_.api->getStride(frame.get(), plane),
          .semaphore = reinterpret_cast<std::uint64_t>(info.readySemaphore),
          .ready_value = info.readyValue};
}

}  // namespace reelgrad
