#include "reelgrad/plugin/metrics.h"

#include <fmt/format.h>

#include <memory>

#include "reelgrad/base/error.h"
#include "reelgrad/clip/vs_convert.h"
#include "reelgrad/doctor/missing_card.h"
#include "reelgrad/plugin/arguments.h"
#include "reelgrad/plugin/engine_call.h"

namespace reelgrad::vs {
namespace {

constexpr const char* kMetrics = "Metrics";

struct Comparison {
  NodeHandle a, b;
  std::unique_ptr<MeterSession> meter;

  void request(int n, VSFrameContext* context, const VSAPI* api) const {
    api->requestFrameFilter(n, a.get(), context);
    api->requestFrameFilter(n, b.get(), context);
  }

  const VSFrame* compare(int n, VSFrameContext* context, VSCore* core, const VSAPI* api) const {
    const FrameHandle first(api->getFrameFilter(n, a.get(), context), FreeFrame{api});
    const FrameHandle second(api->getFrameFilter(n, b.get(), context), FreeFrame{api});
    QualityNumbers numbers;
    const EngineCall call(core, api);
    const Status status = meter->compare(frame_view(first.get(), api), frame_view(second.get(), api), numbers);
    if (!status.ok) fail(fmt::format("frame {}: {}", n, status.message));
    VSFrame* marked = api->copyFrame(first.get(), core);
    VSMap* props = api->getFramePropertiesRW(marked);
    api->mapSetFloat(props, "psnr_rgb", numbers.psnr_rgb, maReplace);
    api->mapSetFloat(props, "psnr_y", numbers.psnr_y, maReplace);
    api->mapSetFloat(props, "ssim_rgb", numbers.ssim_rgb, maReplace);
    api->mapSetFloat(props, "ssim_y", numbers.ssim_y, maReplace);
    return marked;
  }
};

void check_clip(const char* name, const VSVideoInfo& info) {
  if (info.width > 0 && info.height > 0 && to_video_format(info.format)) return;
  fail_usage(fmt::format(
      "clip {} has a format or size that varies or is not known, allowed: 8 to 16 bits, half or float, of one size",
      name));
}

void check_clips(const VSVideoInfo& a, const VSVideoInfo& b) {
  check_clip("a", a);
  check_clip("b", b);
  if (a.width != b.width || a.height != b.height) {
    fail_usage(fmt::format("clip a is {} and clip b is {}, allowed: one size for both", size_text({a.width, a.height}),
                           size_text({b.width, b.height})));
  }
  if (a.numFrames != b.numFrames) {
    fail_usage(fmt::format("clip a has {} frames and clip b has {}, allowed: equally many", a.numFrames, b.numFrames));
  }
}

std::unique_ptr<MeterSession> open_meter(const std::string& device) {
  std::unique_ptr<MeterSession> meter;
  try {
    engine().open_meter(device, meter).raise();
  } catch (const Error& error) {
    throw Error(error.kind(), explained(error));
  }
  return meter;
}

const VSFrame* VS_CC compared_frame(int n, int reason, void* data, void**, VSFrameContext* context, VSCore* core,
                                    const VSAPI* api) {
  const auto* comparison = static_cast<const Comparison*>(data);
  const VSFrame* result = nullptr;
  guarded(
      kMetrics, [&](const char* message) { api->setFilterError(message, context); },
      [&] {
        if (reason == arInitial) comparison->request(n, context, api);
        if (reason == arAllFramesReady) result = comparison->compare(n, context, core, api);
      });
  return result;
}

void VS_CC free_comparison(void* data, VSCore* core, const VSAPI* api) {
  const std::unique_ptr<Comparison> comparison(static_cast<Comparison*>(data));
  close_all(core, api, comparison->meter);
}

void create_metrics(const VSMap* in, VSMap* out, VSCore* core, const VSAPI* api) {
  const Arguments arguments(in, api);
  auto comparison = std::make_unique<Comparison>(Comparison{arguments.node("a"), arguments.node("b"), nullptr});
  const VSVideoInfo info = *api->getVideoInfo(comparison->a.get());
  check_clips(info, *api->getVideoInfo(comparison->b.get()));
  const EngineCall call(core, api);
  comparison->meter = open_meter(arguments.text("device", "auto"));
  const VSFilterDependency nodes[] = {{comparison->a.get(), rpStrictSpatial}, {comparison->b.get(), rpStrictSpatial}};
  api->createVideoFilter(out, kMetrics, &info, compared_frame, free_comparison, fmParallel, nodes, 2,
                         comparison.release(), core);
}

void VS_CC metrics_callback(const VSMap* in, VSMap* out, void*, VSCore* core, const VSAPI* api) {
  guarded(
      kMetrics, [&](const char* message) { api->mapSetError(out, message); },
      [&] { create_metrics(in, out, core, api); });
}

}  // namespace

void register_metrics(VSPlugin* plugin, const VSPLUGINAPI* api) {
  api->registerFunction(kMetrics, "a:vnode;b:vnode;device:data:opt;", "clip:vnode;", metrics_callback, nullptr, plugin);
}

}  // namespace reelgrad::vs
