#include "reelgrad/clip/clip.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>

#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/clip/clip_impl.h"
#include "reelgrad/clip/python_error.h"

namespace reelgrad {
namespace {

constexpr const char* kImagesOnHost = "images are decoded in host memory";

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

Node owned(VSNode* node, const Core& core) {
  return Node(node, FreeNode{core.api()});
}

// The clip that a plugin's function returns.
Node invoked(const Core& core, const char* space, const char* function, const Map& args, const std::string& attempt) {
  const VSAPI* api = core.api();
  const Map result(api->invoke(api->getPluginByNamespace(space, core.core()), function, args.get()), FreeMap{api});
  if (const char* error = api->mapGetError(result.get())) fail(fmt::format("{}: {}", attempt, error));
  return owned(api->mapGetNode(result.get(), "clip", 0, nullptr), core);
}

bool is_on_card(const Core& core, const Node& node) {
  return core.api()->getNodeResidency(node.get()) == nrGPU;
}

FramePath path_of(const Core& core, const Node& node, std::string host_reason) {
  if (!core.card().usable) return {false, core.card().why_not};
  if (!is_on_card(core, node)) return {false, std::move(host_reason)};
  if (std::string refusal = export_refusal(core.api(), core.core(), core.card().card); !refusal.empty()) {
    return {false, std::move(refusal)};
  }
  return {true, fmt::format("VapourSynth makes them in the memory of {}", core.card().name)};
}

Clip through_host(const Clip::Impl& clip, std::string why) {
  log::debug(fmt::format("{}: frames come through host memory: {}", clip.name, why));
  return Clip(std::make_shared<Clip::Impl>(clip, std::move(why)));
}

}  // namespace

Clip::Impl::Impl(std::shared_ptr<const Core> owner, VSNode* owned_node, std::string clip_name, std::string host_reason)
    : core(std::move(owner)),
      source(owned(owned_node, *core)),
      info(checked_info(owned_node, clip_name, core->api())),
      name(std::move(clip_name)),
      path(path_of(*core, source, std::move(host_reason))) {}

Clip::Impl::Impl(std::shared_ptr<const Core> owner, VSNode* owned_node, std::string clip_name,
                 const ClipInfo& clip_info, std::vector<std::string> image_files)
    : core(std::move(owner)),
      source(owned(owned_node, *core)),
      info(clip_info),
      name(std::move(clip_name)),
      files(std::move(image_files)),
      path{false, kImagesOnHost} {}

Clip::Impl::Impl(std::shared_ptr<const Impl> from, VSNode* sink, std::shared_ptr<PicturesInTransit> made)
    : core(from->core),
      source(owned(sink, *core)),
      info(from->info),
      name(from->name),
      path(from->path),
      origin(std::move(from)),
      pictures(std::move(made)) {}

Clip::Impl::Impl(const Impl& from, std::string host_reason)
    : core(from.core),
      source(owned(core->api()->addNodeRef(from.source.get()), *core)),
      info(from.info),
      name(from.name),
      path{false, std::move(host_reason)} {}

VSNode* Clip::Impl::node() const {
  if (!is_on_card(*core, source)) return source.get();
  const std::lock_guard lock(download_mutex_);
  if (!download_) {
    const Map args = make_map(core->api());
    core->api()->mapSetNode(args.get(), "clip", source.get(), maReplace);
    download_ = invoked(*core, "std", "GPUDownload", args, name);
  }
  return download_.get();
}

const VSFrame* Clip::Impl::fetch(std::int64_t number) const {
  std::string text(16 * 1024, '\0');  // long enough for a Python traceback, whose end matters
  const VSFrame* frame =
      core->api()->getFrame(static_cast<int>(number), node(), text.data(), static_cast<int>(text.size()));
  if (!frame) fail_frame(*this, number, text.c_str());
  return frame;
}

Frame Clip::Impl::wrap(const VSFrame* frame, std::int64_t number) const {
  if (!pictures) return Frame(std::make_shared<Frame::Impl>(core, frame, number));
  auto picture = pictures->take(ticket_of(frame, core->api()));
  while (!picture) {  // another request got the same frame, and took it
    core->api()->freeFrame(frame);
    frame = fetch(number);
    picture = pictures->take(ticket_of(frame, core->api()));
  }
  return Frame(std::make_shared<Frame::Impl>(core, frame, number, &info, std::move(picture)));
}

void Clip::Impl::discard(const VSFrame* frame) const {
  if (frame && pictures) pictures->take(ticket_of(frame, core->api()));
  core->api()->freeFrame(frame);
}

void fail_frame(const Clip::Impl& clip, std::int64_t frame, std::string_view text) {
  std::string reason = shorten_python_error(text, "");
  if (reason.empty()) reason = "the filter gave no reason";
  if (reason.find("Resize error 1027") != std::string::npos) {
    reason +=
        ". If the frame is flagged interlaced (`_FieldBased` = 1 or 2), its fields are resized apart, and each "
        "must fit the chroma: deinterlace, or, if it is progressive, clear the flag with "
        "clip.std.SetFieldBased(0)";
  }
  const std::string place =
      clip.files.empty() ? fmt::format("{}: frame {}", clip.name, frame) : clip.files[static_cast<std::size_t>(frame)];
  throw Error(is_memory_error(reason) ? ErrorKind::out_of_memory : ErrorKind::failed,
              fmt::format("{}: {}", place, reason));
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
const FramePath& Clip::frame_path() const {
  return impl_->path;
}

std::string Clip::describe_frame_path() const {
  const FramePath& path = impl_->path;
  return fmt::format("{}: frames come {}{}", impl_->name, path.gpu ? "on the card" : "through host memory",
                     path.why.empty() ? "" : fmt::format(" ({})", path.why));
}

Frame Clip::frame(std::int64_t n) const {
  check_frame_number(*this, n);
  return impl_->wrap(impl_->fetch(n), n);
}

Clip Clip::on_gpu(const GpuFrameTarget& target) const {
  if (impl_->origin) return Clip(impl_->origin).on_gpu(target);
  if (!impl_->path.gpu) return *this;
  const Core& core = *impl_->core;
  const CardId& made_on = core.card().card;
  if (target.card() != made_on) {
    return through_host(*impl_, fmt::format("VapourSynth makes them on the card {}, they are wanted on {}",
                                            card_text(made_on), card_text(target.card())));
  }
  try {
    const ClipInfo& info = impl_->info;
    const GpuSource source{
        core.api(), &vulkan::table(core.api()), core.core(), impl_->source.get(), info.format, info.width, info.height};
    auto pictures = std::make_shared<PicturesInTransit>();
    VSNode* sink = make_gpu_sink(source, target.open_reader(), pictures);
    const Clip read(std::make_shared<Impl>(impl_, sink, std::move(pictures)));
    read.frame(0);
    return read;
  } catch (const std::exception& error) {
    return through_host(*impl_, fmt::format("they cannot be read on the card: {}", error.what()));
  }
}

Clip Clip::bicubic(int width, int height) const {
  if (impl_->origin) return Clip(impl_->origin).bicubic(width, height);
  const VSAPI* api = impl_->core->api();
  const Map args = make_map(api);
  api->mapSetNode(args.get(), "clip", impl_->node(), maReplace);
  api->mapSetInt(args.get(), "width", width, maReplace);
  api->mapSetInt(args.get(), "height", height, maReplace);
  const std::string attempt = fmt::format("{}: resizing to {}x{}", impl_->name, width, height);
  Node node = invoked(*impl_->core, "resize", "Bicubic", args, attempt);
  return Clip(std::make_shared<Impl>(impl_->core, node.release(),
                                     fmt::format("{}, bicubic {}x{}", impl_->name, width, height),
                                     "VapourSynth resizes them in host memory"));
}

}  // namespace reelgrad
