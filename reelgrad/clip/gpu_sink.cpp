#include "reelgrad/clip/gpu_sink.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "reelgrad/base/error.h"
#include "reelgrad/clip/vs_convert.h"

namespace reelgrad {
namespace {

constexpr const char* kTicket = "_ReelgradTicket";

using ErrorText = std::array<char, 512>;

struct Sink {
  GpuSource source;  // owns its node
  VSVideoInfo info;
  std::unique_ptr<GpuFrameReader> reader;
  std::shared_ptr<PicturesInTransit> pictures;

  ~Sink() {
    reader.reset();  // lets go of frames, which must be gone before the source
    source.api->freeNode(source.node);
  }
};

Descriptor export_semaphore(const GpuSource& source, std::uint64_t semaphore) {
  vulkan::VSVulkanExportedSemaphore exported{};
  ErrorText error{};
  if (source.vk->exportGPUSemaphore(source.core, reinterpret_cast<vulkan::VkSemaphore>(semaphore), &exported,
                                    error.data(), error.size()) != 0) {
    fail(fmt::format("VapourSynth cannot export a semaphore: {}", error.data()));
  }
  return Descriptor(static_cast<int>(exported.handle));
}

GpuPlane export_plane(const GpuSource& source, const VSFrame* frame, int plane) {
  vulkan::VSVulkanPlaneInfo info{};
  vulkan::VSVulkanExportedMemory memory{};
  ErrorText error{};
  if (source.vk->getGPUPlane(frame, plane, &info) != 0) fail(fmt::format("plane {} is not on the card", plane));
  if (source.vk->exportGPUPlane(frame, plane, &memory, error.data(), error.size()) != 0) {
    fail(fmt::format("VapourSynth cannot export plane {}: {}", plane, error.data()));
  }
  return {.memory = Descriptor(static_cast<int>(memory.handle)),
          .memory_id = memory.memoryId,
          .memory_bytes = memory.memorySize,
          .offset = memory.offset,
          .stride_bytes = source.api->getStride(frame, plane),
          .semaphore = reinterpret_cast<std::uint64_t>(info.readySemaphore),
          .ready_value = info.readyValue};
}

// The frame that VapourSynth carries.
VSFrame* make_envelope(const Sink& sink, const VSFrame* frame, VSCore* core) {
  const VSAPI* api = sink.source.api;
  VSFrame* envelope = api->newVideoFrame(&sink.info.format, sink.info.width, sink.info.height, frame, core);
  api->mapDeleteKey(api->getFramePropertiesRW(envelope), "_Alpha");  // a frame on the card, which this one is not
  return envelope;
}

const VSFrame* read_frame(const Sink& sink, int n, VSFrameContext* context, VSCore* core) {
  const VSAPI* api = sink.source.api;
  const std::shared_ptr<const VSFrame> frame = take_exportable(sink.source, n, context);
  auto picture = sink.reader->read(export_frame(sink.source, frame));
  VSFrame* envelope = make_envelope(sink, frame.get(), core);
  api->mapSetInt(api->getFramePropertiesRW(envelope), kTicket, sink.pictures->leave(std::move(picture)), maReplace);
  return envelope;
}

const VSFrame* VS_CC sink_frame(int n, int reason, void* instance, void**, VSFrameContext* context, VSCore* core,
                                const VSAPI* api) {
  const Sink& sink = *static_cast<const Sink*>(instance);
  if (reason == arInitial) {
    api->requestFrameFilter(n, sink.source.node, context);
    return nullptr;
  }
  if (reason != arAllFramesReady) return nullptr;
  try {
    return read_frame(sink, n, context, core);
  } catch (const std::exception& error) {
    api->setFilterError(error.what(), context);
  } catch (...) {
    api->setFilterError("reading the frame on the card failed", context);
  }
  return nullptr;
}

void VS_CC free_sink(void* instance, VSCore*, const VSAPI*) {
  delete static_cast<Sink*>(instance);
}

}  // namespace

std::int64_t PicturesInTransit::leave(std::shared_ptr<const GpuPicture> picture) {
  std::lock_guard lock(mutex_);
  pictures_.emplace(next_ticket_, std::move(picture));
  return next_ticket_++;
}

std::shared_ptr<const GpuPicture> PicturesInTransit::take(std::int64_t ticket) {
  std::lock_guard lock(mutex_);
  const auto node = pictures_.extract(ticket);
  return node.empty() ? nullptr : std::move(node.mapped());
}

std::size_t PicturesInTransit::size() const {
  std::lock_guard lock(mutex_);
  return pictures_.size();
}

std::shared_ptr<const VSFrame> take_exportable(const GpuSource& source, int n, VSFrameContext* context) {
  ErrorText error{};
  const VSFrame* frame = source.vk->getExportableFrameFilter(n, source.node, context, error.data(), error.size());
  if (!frame) fail(fmt::format("VapourSynth cannot hand the frame over: {}", error.data()));
  return {frame, [api = source.api](const VSFrame* owned) { api->freeFrame(owned); }};
}

GpuFrame export_frame(const GpuSource& source, std::shared_ptr<const VSFrame> frame) {
  GpuFrame exported{.format = source.format, .width = source.width, .height = source.height};
  for (int plane = 0; plane < exported.format.planes(); ++plane) {
    exported.planes[plane] = export_plane(source, frame.get(), plane);
  }
  exported.export_semaphore = [&source](std::uint64_t semaphore) { return export_semaphore(source, semaphore); };
  exported.owner = std::move(frame);
  return exported;
}

VSNode* make_gpu_sink(const GpuSource& source, std::unique_ptr<GpuFrameReader> reader,
                      std::shared_ptr<PicturesInTransit> pictures) {
  const VSAPI* api = source.api;
  auto sink = std::make_unique<Sink>(source, *api->getVideoInfo(source.node), std::move(reader), std::move(pictures));
  sink->source.node = api->addNodeRef(source.node);
  api->queryVideoFormat(&sink->info.format, cfGray, stInteger, 8, 0, 0, source.core);
  sink->info.width = sink->info.height = 1;
  // The only consumer, and strictly spatial: the source then keeps no cache and hands its planes over in place.
  const VSFilterDependency dependency{source.node, rpStrictSpatial};
  Sink* instance = sink.release();  // VapourSynth's from here on
  VSNode* node = api->createVideoFilter2("reelgrad.OnCard", &instance->info, sink_frame, free_sink, fmParallel,
                                         &dependency, 1, instance, source.core);
  if (node) api->setCacheMode(node, cmForceDisable);  // a picture has one ticket, good for one frame
  return node;
}

std::int64_t ticket_of(const VSFrame* frame, const VSAPI* api) {
  return int_prop(api->getFramePropertiesRO(frame), kTicket, 0, api);
}

}  // namespace reelgrad
