#include "reelgrad/plugin/output_props.h"

#include "reelgrad/clip/vs_convert.h"
#include "reelgrad/plugin/vs_guard.h"

namespace reelgrad::vs {
namespace {

constexpr const char* kAlpha = "_Alpha";

void write(VSMap* props, const char* key, int value, const VSAPI* api) {
  if (value >= 0) api->mapSetInt(props, key, value, maReplace);
}

bool has(const VSMap* props, const char* key, const VSAPI* api) {
  return api->mapNumElements(props, key) > 0;
}

// Of a frame in host memory, a plane there that we can read; nullptr: none, or another.
FrameHandle alpha_of(const VSFrame* frame, const VSAPI* api) {
  int error = 0;
  FrameHandle alpha(api->mapGetFrame(api->getFramePropertiesRO(frame), kAlpha, 0, &error), FreeFrame{api});
  const bool on_host = api->getFrameResidency(frame) == nrCPU && alpha && api->getFrameResidency(alpha.get()) == nrCPU;
  if (!on_host) return FrameHandle(nullptr, FreeFrame{api});
  const VSVideoFormat& format = *api->getVideoFrameFormat(alpha.get());
  const bool readable = format.colorFamily == cfGray && to_video_format(format).has_value();
  return readable ? std::move(alpha) : FrameHandle(nullptr, FreeFrame{api});
}

}  // namespace

void write_color_props(VSMap* props, const ColorProps& color, const VideoFormat& input, const VideoFormat& output,
                       const VSAPI* api) {
  const bool stays_gray = output.family == ColorFamily::gray && input.family == ColorFamily::gray;
  const int matrix = output.family == ColorFamily::rgb ? 0 : color.matrix;
  if (!stays_gray || has(props, "_Matrix", api)) write(props, "_Matrix", matrix, api);
  write(props, "_Range", color.range, api);
  // Of before API 4.2, with its two values the other way round.
  if (has(props, "_ColorRange", api) && color.range >= 0) write(props, "_ColorRange", 1 - color.range, api);
  if (output.is_subsampled()) {
    write(props, "_ChromaLocation", color.chroma_location, api);
  } else {
    api->mapDeleteKey(props, "_ChromaLocation");
  }
}

void fit_alpha(VSFrame* frame, RestorerSession& session, VSCore* core, const VSAPI* api) {
  const FrameHandle alpha = alpha_of(frame, api);
  VSMap* props = api->getFramePropertiesRW(frame);
  if (!alpha) {
    api->mapDeleteKey(props, kAlpha);
    return;
  }
  const VSVideoFormat& of = *api->getVideoFrameFormat(frame);
  VSVideoFormat format{};
  api->queryVideoFormat(&format, cfGray, of.sampleType, of.bitsPerSample, 0, 0, core);
  const int width = api->getFrameWidth(frame, 0), height = api->getFrameHeight(frame, 0);
  const FrameView from = frame_view(alpha.get(), api);
  if (from.width * session.scale() != width || from.height * session.scale() != height) {  // not this frame's
    api->mapDeleteKey(props, kAlpha);
    return;
  }
  if (from.format == to_video_format(format) && session.scale() == 1) return;
  VSFrame* fitted = api->newVideoFrame(&format, width, height, alpha.get(), core);
  FrameHandle owner(fitted, FreeFrame{api});
  session.enlarge(from, writable_view(fitted, api)).raise();
  api->mapConsumeFrame(props, kAlpha, owner.release(), maReplace);
}

}  // namespace reelgrad::vs
