#include "reelgrad/plugin/model_filter.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reelgrad/base/error.h"
#include "reelgrad/clip/gpu_input.h"
#include "reelgrad/clip/vs_convert.h"
#include "reelgrad/clip/vs_vulkan.h"
#include "reelgrad/clip/vulkan_card.h"
#include "reelgrad/doctor/missing_card.h"
#include "reelgrad/plugin/engine_log.h"
#include "reelgrad/plugin/vs_guard.h"

namespace reelgrad::vs {
namespace {

constexpr const char* kFunction = "Model";

// One frame of the network's window.
struct InputFrame {
  std::shared_ptr<const VSFrame> frame;
  std::shared_ptr<const GpuPicture> picture;  // of a clip on the network's card
  FrameView view;
  std::int64_t number = 0;
};

class ModelFilter {
 public:
  // `on_card`: the node's frames where they are on the network's card; null: they are in host memory.
  ModelFilter(NodeHandle node, const VSVideoInfo& input, std::unique_ptr<RestorerSession> session,
              std::unique_ptr<GpuInput> on_card)
      : node_(std::move(node)),
        input_(input),
        output_(input),
        session_(std::move(session)),
        on_card_(std::move(on_card)) {
    output_.width *= session_->scale();
    output_.height *= session_->scale();
  }

  VSNode* node() const { return node_.get(); }
  const VSVideoInfo& output() const { return output_; }
  int window() const { return session_->window(); }

  void request(int n, VSFrameContext* context, const VSAPI* api) const {
    const int radius = window() / 2;
    for (int i = std::max(0, n - radius); i <= std::min(input_.numFrames - 1, n + radius); ++i) {
      api->requestFrameFilter(i, node_.get(), context);
    }
  }

  // The restored frame; its properties are the input's, all of which still hold: neither format nor shape changed.
  const VSFrame* restore(int n, VSFrameContext* context, VSCore* core, const VSAPI* api) const {
    const std::vector<InputFrame> window = take_window(n, context, api);
    RestoreJob job{.clip = "the clip"};
    for (const InputFrame& input : window) job.window.push_back({input.view, input.number});
    const InputFrame& middle = window[window.size() / 2];
    VSFrame* out = api->newVideoFrame(&output_.format, output_.width, output_.height, middle.frame.get(), core);
    FrameHandle owner(out, FreeFrame{api});
    if (on_card_) api->mapDeleteKey(api->getFramePropertiesRW(out), "_Alpha");  // it may not leave with a frame of ours
    const EngineCall call(core, api);
    ColorProps color;
    const Status status = session_->restore(job, {writable_view(out, middle.view.format, api)}, color);
    if (!status.ok) fail(fmt::format("frame {}: {}", n, status.message));
    return owner.release();
  }

 private:
  // Frames n - radius to n + radius, those at the clip's ends in place of those beyond. Each is taken once, as it was
  // asked for once.
  std::vector<InputFrame> take_window(int n, VSFrameContext* context, const VSAPI* api) const {
    const int radius = window() / 2;
    std::vector<InputFrame> frames;
    int last = -1;
    for (int i = n - radius; i <= n + radius; ++i) {
      const int clamped = std::clamp(i, 0, input_.numFrames - 1);
      frames.push_back(clamped == last ? frames.back() : take(clamped, context, api));
      last = clamped;
    }
    return frames;
  }

  InputFrame take(int n, VSFrameContext* context, const VSAPI* api) const {
    if (on_card_) return take_on_card(n, context, api);
    const std::shared_ptr<const VSFrame> frame(api->getFrameFilter(n, node_.get(), context), FreeFrame{api});
    return {frame, nullptr, frame_view(frame.get(), api), n};
  }

  InputFrame take_on_card(int n, VSFrameContext* context, const VSAPI* api) const {
    const auto [frame, picture] = on_card_->take(n, context);
    const ColorProps color = color_props(api->getFramePropertiesRO(frame.get()), api);
    const VideoFormat format = to_video_format(input_.format).value();
    return {frame, picture, {format, input_.width, input_.height, {}, color, picture.get()}, n};
  }

  MutableFrameView writable_view(VSFrame* frame, const VideoFormat& format, const VSAPI* api) const {
    MutableFrameView view{format, output_.width, output_.height};
    for (int plane = 0; plane < format.planes(); ++plane) {
      view.planes[plane] = {reinterpret_cast<std::byte*>(api->getWritePtr(frame, plane)), api->getStride(frame, plane)};
    }
    return view;
  }

  NodeHandle node_;
  VSVideoInfo input_, output_;
  std::unique_ptr<RestorerSession> session_;
  std::unique_ptr<GpuInput> on_card_;  // goes first: it keeps frames of the node's
};

std::string text_argument(const VSMap* in, const char* key, const std::string& fallback, const VSAPI* api) {
  int error = 0;
  const char* data = api->mapGetData(in, key, 0, &error);
  return error ? fallback : std::string(data, static_cast<std::size_t>(api->mapGetDataSize(in, key, 0, nullptr)));
}

int int_argument(const VSMap* in, const char* key, int fallback, int least, const VSAPI* api) {
  int error = 0;
  const std::int64_t value = api->mapGetInt(in, key, 0, &error);
  if (error) return fallback;
  if (value < least || value > 65536) fail_usage(fmt::format("{} is {}, allowed: {} to 65536", key, value, least));
  return static_cast<int>(value);
}

void check_clip(const VSVideoInfo& info) {
  const bool constant = info.format.colorFamily != cfUndefined && info.width > 0 && info.height > 0;
  if (!constant) fail_usage("the clip's format or size varies, allowed: one format and size for all frames");
  if (!to_video_format(info.format)) {
    fail_usage(fmt::format("the clip has {}-bit integer samples, allowed: 8 to 16 bits, half or float",
                           info.format.bitsPerSample));
  }
}

RestoreRequest restore_request(const VSMap* in, const VSAPI* api) {
  RestoreRequest request;
  request.model = text_argument(in, "model", "", api);
  if (request.model.empty())
    fail_usage("model is empty, it must name a .safetensors or .pth file, a checkpoint or a run folder");
  request.device = text_argument(in, "device", request.device, api);
  request.precision = text_argument(in, "precision", request.precision, api);
  request.tile_px = int_argument(in, "tile", request.tile_px, 0, api);
  request.overlap_px = int_argument(in, "overlap", request.overlap_px, -1, api);
  request.overrides.matrix_in = text_argument(in, "matrix_in", request.overrides.matrix_in, api);
  request.overrides.range_in = text_argument(in, "range_in", request.overrides.range_in, api);
  request.overrides.chromaloc_in = text_argument(in, "chromaloc_in", request.overrides.chromaloc_in, api);
  return request;
}

// The clip's frames in host memory.
NodeHandle downloaded(const NodeHandle& node, VSCore* core, const VSAPI* api) {
  const std::unique_ptr<VSMap, void(VS_CC*)(VSMap*)> arguments(api->createMap(), api->freeMap);
  api->mapSetNode(arguments.get(), "clip", node.get(), maReplace);
  const std::unique_ptr<VSMap, void(VS_CC*)(VSMap*)> result(
      api->invoke(api->getPluginByNamespace("std", core), "GPUDownload", arguments.get()), api->freeMap);
  if (const char* error = api->mapGetError(result.get())) fail(error);
  return NodeHandle(api->mapGetNode(result.get(), "clip", 0, nullptr), FreeNode{api});
}

// Why the frames of a clip on a card must come through host memory; empty: the session takes them there.
std::string host_reason(const RestorerSession& session, VSCore* core, const VSAPI* api) {
  const GpuFrameTarget* target = session.frame_target();
  return target ? export_refusal(api, core, target->card()) : "the network runs on the CPU";
}

// The clip's frames on the network's card; nullptr where they are in host memory, or, with `node` replaced, must come
// through it.
std::unique_ptr<GpuInput> input_on_card(NodeHandle& node, const RestorerSession& session, VSCore* core,
                                        const VSAPI* api) {
  if (api->getNodeResidency(node.get()) != nrGPU) return nullptr;
  const std::string reason = host_reason(session, core, api);
  if (reason.empty()) {
    const VSVideoInfo& info = *api->getVideoInfo(node.get());
    const GpuSource source{.api = api,
                           .vk = &vulkan::table(api),
                           .core = core,
                           .node = node.get(),
                           .format = to_video_format(info.format).value(),
                           .width = info.width,
                           .height = info.height};
    return std::make_unique<GpuInput>(source, session.frame_target()->open_reader());
  }
  api->logMessage(mtDebug, fmt::format("{}: frames come through host memory: {}", kFunction, reason).c_str(), core);
  node = downloaded(node, core, api);
  return nullptr;
}

const VSFrame* VS_CC get_frame(int n, int reason, void* data, void**, VSFrameContext* context, VSCore* core,
                               const VSAPI* api) {
  const auto* filter = static_cast<const ModelFilter*>(data);
  const VSFrame* result = nullptr;
  guarded(
      kFunction, [&](const char* message) { api->setFilterError(message, context); },
      [&] {
        if (reason == arInitial) filter->request(n, context, api);
        if (reason == arAllFramesReady) result = filter->restore(n, context, core, api);
      });
  return result;
}

void VS_CC free_filter(void* data, VSCore*, const VSAPI*) {
  delete static_cast<ModelFilter*>(data);
}

std::unique_ptr<RestorerSession> open_session(const RestoreRequest& request) {
  std::unique_ptr<RestorerSession> session;
  try {
    engine().open_restorer(request, session).raise();
  } catch (const Error& error) {
    throw Error(error.kind(), explained(error));
  }
  return session;
}

void create(const VSMap* in, VSMap* out, VSCore* core, const VSAPI* api) {
  NodeHandle node(api->mapGetNode(in, "clip", 0, nullptr), FreeNode{api});
  const VSVideoInfo input = *api->getVideoInfo(node.get());
  check_clip(input);
  const EngineCall call(core, api);
  std::unique_ptr<RestorerSession> session = open_session(restore_request(in, api));

  auto on_card = input_on_card(node, *session, core, api);
  auto filter = std::make_unique<ModelFilter>(std::move(node), input, std::move(session), std::move(on_card));
  const VSVideoInfo output = filter->output();
  const VSFilterDependency dependency{filter->node(), filter->window() == 1 ? rpStrictSpatial : rpGeneral};
  // The session takes one call at a time: VapourSynth's other threads are better used on the clip's own filters.
  api->createVideoFilter(out, kFunction, &output, get_frame, free_filter, fmParallelRequests, &dependency, 1,
                         filter.release(), core);
}

void VS_CC create_callback(const VSMap* in, VSMap* out, void*, VSCore* core, const VSAPI* api) {
  guarded(
      kFunction, [&](const char* message) { api->mapSetError(out, message); }, [&] { create(in, out, core, api); });
}

}  // namespace

void register_model(VSPlugin* plugin, const VSPLUGINAPI* api) {
  // vnode:all: a clip in host memory or in a card's, which VapourSynth would bring to host memory otherwise.
  api->registerFunction(kFunction,
                        "clip:vnode:all;model:data;device:data:opt;precision:data:opt;tile:int:opt;overlap:int:opt;"
                        "matrix_in:data:opt;range_in:data:opt;chromaloc_in:data:opt;",
                        "clip:vnode;", create_callback, nullptr, plugin);
}

}  // namespace reelgrad::vs
