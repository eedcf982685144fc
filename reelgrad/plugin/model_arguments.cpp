#include "reelgrad/plugin/model_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string>

#include "reelgrad/base/error.h"
#include "reelgrad/clip/vs_convert.h"

namespace reelgrad::vs {

// vnode:all: a clip in host memory or in a card's, which VapourSynth would bring to host memory otherwise.
const char* const kModelArguments =
    "clip:vnode:all;model:data;device:data:opt;precision:data:opt;tile:int:opt;overlap:data:opt;streams:int:opt;"
    "vram_mb:int:opt;window:int:opt;window_ends:data:opt;scene_cuts:int:opt;strength:float:opt;ensemble:int:opt;"
    "sigma:float:opt;sigma_clip:vnode:opt;format:int:opt;dither:data:opt;matrix_in:data:opt;range_in:data:opt;"
    "chromaloc_in:data:opt;gpu_output:int:opt;";

namespace {

constexpr int kMostPixels = 65536;
constexpr int kMostStreams = 32;
constexpr std::int64_t kMostMegabytes = std::int64_t{1} << 24;
constexpr int kMostFrames = 4096;

void check_clip(const VSVideoInfo& info) {
  const bool constant = info.format.colorFamily != cfUndefined && info.width > 0 && info.height > 0;
  if (!constant) fail_usage("the clip's format or size varies, allowed: one format and size for all frames");
  if (!to_video_format(info.format)) {
    fail_usage(
        fmt::format("the clip has {}-bit samples, subsampled by {}x{}, allowed: 8 to 16 bits, half or float, chroma "
                    "of at least a quarter of each side",
                    info.format.bitsPerSample, 1 << info.format.subSamplingW, 1 << info.format.subSamplingH));
  }
}

// Python writes the number of `overlap=16` out.
int overlap_of(const Arguments& arguments) {
  const std::string text = arguments.text("overlap", "auto");
  if (const auto overlap = parse_overlap(text)) return *overlap;
  fail_usage(
      fmt::format("overlap is \"{}\", allowed: 0 to {} pixels, \"auto\" or \"exact\" (all that the network sees)", text,
                  kMostOverlap_px));
}

VSVideoFormat output_format(const Arguments& arguments, const VSVideoInfo& input, VSCore* core, const VSAPI* api) {
  if (!arguments.given("format")) return input.format;
  const std::int64_t id = arguments.integer("format", 0, 1, 0xFFFFFFFF);
  VSVideoFormat format{};
  if (api->getVideoFormatByID(&format, static_cast<std::uint32_t>(id), core) == 0 || !to_video_format(format)) {
    fail_usage(fmt::format(
        "format is {}, allowed: RGB, Gray and YUV formats of 8 to 16 bits, half or float, as vs.YUV420P10", id));
  }
  return format;
}

void check_sigma_clip(const ModelArguments& model, const VSAPI* api) {
  const VSVideoInfo& sigma = *api->getVideoInfo(model.sigma_clip.get());
  if (sigma.width != model.input.width || sigma.height != model.input.height) {
    fail_usage(fmt::format("sigma_clip is {}, allowed: the clip's size, {}", size_text({sigma.width, sigma.height}),
                           size_text({model.input.width, model.input.height})));
  }
  if (sigma.format.colorFamily != cfGray || !to_video_format(sigma.format)) {
    fail_usage("sigma_clip has another format, allowed: Gray of 8 to 16 bits, half or float");
  }
}

RestoreRequest restore_request(const Arguments& arguments) {
  RestoreRequest request;
  request.model = arguments.text("model", "");
  if (request.model.empty()) {
    fail_usage("model is empty, allowed: a .safetensors or .pth file, a checkpoint or a run folder");
  }
  request.device = arguments.text("device", request.device);
  request.precision = arguments.text("precision", request.precision);
  request.tile_px = static_cast<int>(arguments.integer("tile", 0, 0, kMostPixels));
  request.overlap_px = overlap_of(arguments);
  request.streams = static_cast<int>(arguments.integer("streams", 0, 0, kMostStreams));
  request.vram_mb = arguments.integer("vram_mb", 0, 0, kMostMegabytes);
  request.strength = arguments.number("strength", 1, 0, 1);
  request.ensemble = arguments.flag("ensemble", false);
  if (arguments.given("sigma")) request.sigma = arguments.number("sigma", 0, 0, 255);
  request.dither = arguments.choice("dither", {"none", "ordered"}) == 1 ? Dither::ordered : Dither::none;
  request.overrides.matrix_in = arguments.text("matrix_in", request.overrides.matrix_in);
  request.overrides.range_in = arguments.text("range_in", request.overrides.range_in);
  request.overrides.chromaloc_in = arguments.text("chromaloc_in", request.overrides.chromaloc_in);
  return request;
}

}  // namespace

ModelArguments model_arguments(const VSMap* in, VSCore* core, const VSAPI* api) {
  const Arguments arguments(in, api);
  ModelArguments model{.request = restore_request(arguments),
                       .clip = arguments.node("clip"),
                       .sigma_clip = arguments.node("sigma_clip")};
  model.input = *api->getVideoInfo(model.clip.get());
  check_clip(model.input);
  model.output = output_format(arguments, model.input, core, api);
  model.format = {to_video_format(model.input.format).value(), model.input.width, model.input.height,
                  to_video_format(model.output).value()};
  if (model.sigma_clip && model.request.sigma) fail_usage("sigma and sigma_clip are both given, allowed: one of them");
  if (model.sigma_clip) check_sigma_clip(model, api);
  if (arguments.given("window")) model.window = static_cast<int>(arguments.integer("window", 1, 1, kMostFrames));
  model.ends = arguments.choice("window_ends", {"repeat", "mirror"}) == 1 ? WindowEnds::mirror : WindowEnds::repeat;
  model.scene_cuts = arguments.flag("scene_cuts", true);
  model.gpu_output = arguments.flag("gpu_output", false);
  return model;
}

}  // namespace reelgrad::vs
