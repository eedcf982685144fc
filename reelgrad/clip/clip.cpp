#include "reelgrad/clip/clip.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>

#include "reelgrad/base/error.h"
#include "reelgrad/clip/clip_impl.h"
#include "reelgrad/clip/python_error.h"

namespace reelgrad {
namespace {

struct Shape {
  VSVideoFormat format;
  int width, height;
  bool operator==(const Shape& other) const {
    return width == other.width && height == other.height && format.colorFamily == other.format.colorFamily &&
           format.sampleType == other.format.sampleType && format.bitsPerSample == other.format.bitsPerSample &&
           format.subSamplingW == other.format.subSamplingW && format.subSamplingH == other.format.subSamplingH;
  }
};

std::string format_name(const VSVideoFormat& format, const VSAPI* api) {
  char name[32] = "unknown";
  api->getVideoFormatName(&format, name);
  return name;
}

std::string shape_name(const Shape& shape, const VSAPI* api) {
  return fmt::format("{}x{} {}", shape.width, shape.height, format_name(shape.format, api));
}

// Where a variable clip first changes, as a sentence. Looks as far as it can decode in a few seconds: a person wants to
// know the frame, but not to wait for a film.
std::string describe_change(VSNode* node, int frames, const VSAPI* api) {
  constexpr auto kPatience = std::chrono::seconds(5);
  const auto start = std::chrono::steady_clock::now();
  std::optional<Shape> first;
  for (int n = 0; n < frames && std::chrono::steady_clock::now() - start < kPatience; ++n) {
    const VSFrame* frame = api->getFrame(n, node, nullptr, 0);
    if (!frame) break;
    const Shape shape{*api->getVideoFrameFormat(frame), api->getFrameWidth(frame, 0), api->getFrameHeight(frame, 0)};
    api->freeFrame(frame);
    if (!first) first = shape;
    if (!(shape == *first)) {
      return fmt::format("frame {} is {}, those before it are {}", n, shape_name(shape, api), shape_name(*first, api));
    }
  }
  return "no frame that differs was found among the first ones";
}

bool is_variable(const VSVideoInfo& info) {
  return info.format.colorFamily == cfUndefined || info.width <= 0 || info.height <= 0;
}

ClipInfo checked_info(VSNode* node, const std::string& name, const VSAPI* api) {
  const VSVideoInfo& vs = *api->getVideoInfo(node);
  if (is_variable(vs)) {
    fail_usage(
        fmt::format("{}: the clip changes its format or size ({}); make it constant, for example "
                    "clip.resize.Bicubic(width, height, format=vs.YUV420P8)",
                    name, describe_change(node, vs.numFrames, api)));
  }
  const auto format = to_video_format(vs.format);
  if (!format) {
    fail_usage(
        fmt::format("{}: format {} is not supported; allowed are integers of 8 to 16 bits, half and single "
                    "precision floats",
                    name, format_name(vs.format, api)));
  }
  return {*format, vs.width, vs.height, vs.numFrames,
          vs.fpsNum > 0 && vs.fpsDen > 0 ? Rational{vs.fpsNum, vs.fpsDen} : Rational{}};
}

}  // namespace

Clip::Impl::Impl(std::shared_ptr<const Core> owner, VSNode* owned_node, std::string clip_name)
    : core(std::move(owner)), node(owned_node), name(std::move(clip_name)) {
  try {
    info = checked_info(node, name, core->api());
  } catch (...) {
    core->api()->freeNode(node);  // the destructor of a half-made object does not run
    throw;
  }
}

std::string frame_error(const std::string& clip_name, std::int64_t frame, std::string_view text) {
  const std::string reason = shorten_python_error(text, "");
  return fmt::format("{}: frame {}: {}", clip_name, frame, reason.empty() ? "the filter gave no reason" : reason);
}

void check_frame_number(const Clip& clip, std::int64_t frame) {
  if (frame >= 0 && frame < clip.info().frames) return;
  fail_usage(fmt::format("{}: frame {} does not exist, the clip has {} (0 to {})", clip.name(), frame,
                         clip.info().frames, clip.info().frames - 1));
}

const ClipInfo& Clip::info() const {
  return impl_->info;
}
const std::string& Clip::name() const {
  return impl_->name;
}

Frame Clip::frame(std::int64_t n) const {
  check_frame_number(*this, n);
  const VSAPI* api = impl_->core->api();
  std::string text(16 * 1024, '\0');  // long enough for a Python traceback, whose end matters
  const VSFrame* frame = api->getFrame(static_cast<int>(n), impl_->node, text.data(), static_cast<int>(text.size()));
  if (!frame) fail(frame_error(impl_->name, n, text.c_str()));
  return Frame(std::make_shared<Frame::Impl>(impl_->core, frame, n));
}

Clip Clip::bicubic(int width, int height) const {
  const VSAPI* api = impl_->core->api();
  const Map args = make_map(api);
  api->mapSetNode(args.get(), "clip", impl_->node, maReplace);
  api->mapSetInt(args.get(), "width", width, maReplace);
  api->mapSetInt(args.get(), "height", height, maReplace);
  VSPlugin* resize = api->getPluginByNamespace("resize", impl_->core->core());
  const Map result(api->invoke(resize, "Bicubic", args.get()), FreeMap{api});
  if (const char* error = api->mapGetError(result.get())) {
    fail(fmt::format("{}: resizing to {}x{}: {}", impl_->name, width, height, error));
  }
  VSNode* node = api->mapGetNode(result.get(), "clip", 0, nullptr);
  return Clip(
      std::make_shared<Clip::Impl>(impl_->core, node, fmt::format("{}, bicubic {}x{}", impl_->name, width, height)));
}

}  // namespace reelgrad
