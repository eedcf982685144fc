#include "reelgrad/clip/vs_convert.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace reelgrad {
namespace {

int narrow(std::int64_t value) {
  return static_cast<int>(
      std::clamp<std::int64_t>(value, std::numeric_limits<int>::min(), std::numeric_limits<int>::max()));
}

// _Range came with API 4.2; the property it replaced, _ColorRange, has the two values the other way round.
int range_prop(const VSMap* props, const VSAPI* api) {
  const std::int64_t range = int_prop(props, "_Range", -1, api);
  if (range >= 0) return narrow(range);
  const std::int64_t old_range = int_prop(props, "_ColorRange", -1, api);
  return old_range == 0 || old_range == 1 ? static_cast<int>(1 - old_range) : -1;
}

}  // namespace

std::optional<VideoFormat> to_video_format(const VSVideoFormat& format) {
  VideoFormat result;
  switch (format.colorFamily) {
    case cfGray:
      result.family = ColorFamily::gray;
      break;
    case cfRGB:
      result.family = ColorFamily::rgb;
      break;
    case cfYUV:
      result.family = ColorFamily::yuv;
      break;
    default:
      return std::nullopt;
  }
  result.sample_type = format.sampleType == stFloat ? SampleType::floating : SampleType::integer;
  if (!result.is_float() && format.bitsPerSample > 16) return std::nullopt;
  if (format.subSamplingW > 2 || format.subSamplingH > 2) return std::nullopt;  // VapourSynth knows up to 4
  result.bits = format.bitsPerSample;
  result.subsampling_w = format.subSamplingW;
  result.subsampling_h = format.subSamplingH;
  return result;
}

std::int64_t int_prop(const VSMap* props, const char* key, std::int64_t fallback, const VSAPI* api) {
  int error = 0;
  const std::int64_t value = api->mapGetInt(props, key, 0, &error);
  return error ? fallback : value;
}

ColorProps color_props(const VSMap* props, const VSAPI* api) {
  ColorProps color;
  color.matrix = narrow(int_prop(props, "_Matrix", -1, api));
  color.range = range_prop(props, api);
  color.chroma_location = narrow(int_prop(props, "_ChromaLocation", -1, api));
  color.transfer = narrow(int_prop(props, "_Transfer", -1, api));
  color.primaries = narrow(int_prop(props, "_Primaries", -1, api));
  return color;
}

Rational rational_prop(const VSMap* props, const char* num_key, const char* den_key, const VSAPI* api) {
  const std::int64_t num = int_prop(props, num_key, 0, api);
  const std::int64_t den = int_prop(props, den_key, 0, api);
  if (num <= 0 || den <= 0) return {};
  const std::int64_t divisor = std::gcd(num, den);
  return {num / divisor, den / divisor};
}

FrameView frame_view(const VSFrame* frame, const VSAPI* api) {
  FrameView view;
  view.format = to_video_format(*api->getVideoFrameFormat(frame)).value();
  view.width = api->getFrameWidth(frame, 0);
  view.height = api->getFrameHeight(frame, 0);
  for (int plane = 0; plane < view.format.planes(); ++plane) {
    view.planes[plane] = {reinterpret_cast<const std::byte*>(api->getReadPtr(frame, plane)),
                          api->getStride(frame, plane)};
  }
  view.color = color_props(api->getFramePropertiesRO(frame), api);
  return view;
}

MutableFrameView writable_view(VSFrame* frame, const VSAPI* api) {
  MutableFrameView view;
  view.format = to_video_format(*api->getVideoFrameFormat(frame)).value();
  view.width = api->getFrameWidth(frame, 0);
  view.height = api->getFrameHeight(frame, 0);
  for (int plane = 0; plane < view.format.planes(); ++plane) {
    view.planes[plane] = {reinterpret_cast<std::byte*>(api->getWritePtr(frame, plane)), api->getStride(frame, plane)};
  }
  return view;
}

}  // namespace reelgrad
