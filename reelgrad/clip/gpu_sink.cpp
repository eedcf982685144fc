#include "reelgrad/clip/gpu_sink.h"

#include <utility>

#include "reelgrad/base/error.h"
#include "reelgrad/clip/core.h"
#include "reelgrad/clip/vs_convert.h"

namespace reelgrad {
namespace {

constexpr const char* kTicket = "_ReelgradTicket";

struct Sink {
  Sink(const GpuSource& from, std::unique_ptr<GpuFrameReader> reader, std::shared_ptr<PicturesInTransit> in_transit)
      : api(from.api),
        node(api->addNodeRef(from.node), FreeNode{api}),
        info(*api->getVideoInfo(from.node)),
        input(from, std::move(reader)),
        pictures(std::move(in_transit)) {
    api->queryVideoFormat(&info.format, cfGray, stInteger, 8, 0, 0, from.core);
    info.width = info.height = 1;
  }

  const VSAPI* api;
  Node node;  // keeps the source's
  VSVideoInfo info;
  GpuInput input;
  std::shared_ptr<PicturesInTransit> pictures;
};

// The frame that VapourSynth carries.
VSFrame* make_envelope(const Sink& sink, const VSFrame* frame, VSCore* core) {
  const VSAPI* api = sink.api;
  VSFrame* envelope = api->newVideoFrame(&sink.info.format, sink.info.width, sink.info.height, frame, core);
  api->mapDeleteKey(api->getFramePropertiesRW(envelope), "_Alpha");  // a frame on the card, which this one is not
  return envelope;
}

const VSFrame* read_frame(Sink& sink, int n, VSFrameContext* context, VSCore* core) {
  GpuInput::Taken taken = sink.input.take(n, context);
  VSFrame* envelope = make_envelope(sink, taken.frame.get(), core);
  VSMap* props = sink.api->getFramePropertiesRW(envelope);
  sink.api->mapSetInt(props, kTicket, sink.pictures->leave(std::move(taken.picture)), maReplace);
  return envelope;
}

const VSFrame* VS_CC sink_frame(int n, int reason, void* instance, void**, VSFrameContext* context, VSCore* core,
                                const VSAPI* api) {
  Sink& sink = *static_cast<Sink*>(instance);
  if (reason == arInitial) {
    api->requestFrameFilter(n, sink.node.get(), context);
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

VSNode* make_gpu_sink(const GpuSource& source, std::unique_ptr<GpuFrameReader> reader,
                      std::shared_ptr<PicturesInTransit> pictures) {
  const VSAPI* api = source.api;
  auto sink = std::make_unique<Sink>(source, std::move(reader), std::move(pictures));
  // The only consumer, and strictly spatial: the source then keeps no cache and hands its planes over in place.
  const VSFilterDependency dependency{source.node, rpStrictSpatial};
  Sink* instance = sink.release();  // VapourSynth's from here on
  VSNode* node = api->createVideoFilter2("reelgrad.OnCard", &instance->info, sink_frame, free_sink, fmParallel,
                                         &dependency, 1, instance, source.core);
  if (!node) fail("VapourSynth cannot make a filter");
  api->setCacheMode(node, cmForceDisable);  // a picture has one ticket, good for one frame
  return node;
}

std::int64_t ticket_of(const VSFrame* frame, const VSAPI* api) {
  return int_prop(api->getFramePropertiesRO(frame), kTicket, 0, api);
}

}  // namespace reelgrad
