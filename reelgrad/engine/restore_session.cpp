#include "reelgrad/engine/restore_session.h"

#include <fmt/format.h>

#include <optional>
#include <vector>

#include "reelgrad/base/error.h"
#include "reelgrad/base/text.h"
#include "reelgrad/engine/guarded.h"
#include "reelgrad/frames/color_props.h"
#include "reelgrad/frames/gpu_plane_import.h"
#include "reelgrad/record/run_folder.h"
#include "reelgrad/restore/enlarge.h"
#include "reelgrad/restore/restorer.h"
#include "reelgrad/restore/validation.h"
#include "reelgrad/train/trainer.h"

namespace reelgrad {
namespace {

// A wrong override is known before the first frame: tried on a format and properties that have nothing else to refuse.
void check_overrides(const ColorOverrides& overrides) {
  VideoFormat format;
  format.family = ColorFamily::yuv;
  ColorProps props;
  props.matrix = 1;
  props.range = 0;
  props.chroma_location = 0;
  resolve_color(format, props, 720, overrides, "", 0);
}

static_assert(kMeasuredOverlap == RestoreOptions::kMeasured && kExactOverlap == RestoreOptions::kExact);

Restorer make_restorer(const RestoreRequest& request) {
  check_overrides(request.overrides);
  RestoreOptions options{.device = resolve_device(request.device),
                         .precision = request.precision,
                         .tile_px = request.tile_px,
                         .overlap_px = request.overlap_px,
                         .streams = request.streams,
                         .vram_mb = request.vram_mb,
                         .strength = request.strength,
                         .ensemble = request.ensemble,
                         .sigma = request.sigma,
                         .ordered_dither = request.dither == Dither::ordered,
                         .overrides = request.overrides};
  Model model = load_model(find_model_file(request.model));
  return Restorer(std::move(model.network), model.spec, std::move(options));
}

class Session : public RestorerSession {
 public:
  explicit Session(Restorer restorer)
      : restorer_(std::move(restorer)), frame_target_(reelgrad::frame_target(restorer_.device())) {}

  int scale() const override { return restorer_.info().scale; }
  int window() const override { return restorer_.info().window; }
  int outputs() const override { return restorer_.outputs(); }
  int streams() const override { return restorer_.streams(); }
  bool takes_sigma() const override { return restorer_.info().noise_level; }
  const GpuFrameTarget* frame_target() const override { return frame_target_.get(); }

  Status prepare(const RestoreFormat& format) override {
    return guarded([&] { restorer_.prepare({format.input, format.width, format.height, format.output}); });
  }

  Status restore(const RestoreJob& job, const std::vector<MutableFrameView>& outs, ColorProps& color) override {
    return guarded([&] {
      RestoreCall call{.sigma = job.sigma, .clip = job.clip, .stop_requested = job.stop_requested};
      for (const NumberedFrame& frame : job.window) call.window.push_back({frame.view, frame.number});
      if (!job.window.empty()) call.frame = job.window[job.window.size() / 2].number;
      color = restorer_.restore(call, outs);
    });
  }

  Status output_color(const FrameView& input, const std::string& clip, const VideoFormat& output,
                      ColorProps& color) override {
    return guarded([&] { color = restorer_.output_color(input, clip, output); });
  }
  Status enlarge(const FrameView& from, const MutableFrameView& out) override {
    return guarded([&] { enlarge_plane(from, out); });
  }

  std::string describe() const override { return restorer_.describe(); }
  std::string arithmetic() const override { return restorer_.arithmetic(); }

 private:
  Restorer restorer_;
  std::unique_ptr<CudaFrameTarget> frame_target_;
};

OpenOptions open_options(const ClipArgument& clip, Observer& observer) {
  return {.args = clip.args, .on_progress = [&observer](const std::string& text) { observer.status(text); }};
}

// Both sides, with their frames on the card where that can be.
ClipPair open_pair(const ClipArgument& clip, const Restorer& restorer, Observer& observer) {
  OpenOptions options = open_options(clip, observer);
  options.card = card_of(restorer.device());
  const ClipPair pair = training_pair(open_named_clip(clip.path, options), restorer.info().scale);
  const auto target = frame_target(restorer.device());
  return target ? pair.on_gpu(*target) : pair;
}

FrameRange range_of(const ValidateRequest& request, std::int64_t frames) {
  return request.frames.empty() ? FrameRange{0, frames} : parse_frame_range(request.frames, frames, "--frames");
}

std::vector<ValidationClip> clips_to_measure(const ValidateRequest& request, const Restorer& restorer,
                                             Observer& observer) {
  if (!request.inputs.empty()) {
    const ImagePairs images = ImagePairs::open(request.inputs, request.clip.path, restorer.info().scale,
                                               open_options(request.clip, observer));
    return image_clips(images, range_of(request, static_cast<std::int64_t>(images.list().size())));
  }
  ValidationClip clip{request.clip.path.filename().string(), open_pair(request.clip, restorer, observer)};
  const FrameRange range = range_of(request, clip.pair.target.info().frames);
  clip.begin = range.begin;
  clip.end = range.end;
  return {std::move(clip)};
}

QualityNumbers numbers(const QualityScores& scores) {
  return {scores.psnr_rgb, scores.psnr_y, scores.ssim_rgb, scores.ssim_y};
}

}  // namespace

std::unique_ptr<RestorerSession> open_restore_session(const RestoreRequest& request) {
  return std::make_unique<Session>(make_restorer(request));
}

void validate_session(const ValidateRequest& request, Observer& observer, ValidateResult& result) {
  Restorer restorer = make_restorer(request.restore);
  const std::vector<ValidationClip> clips = clips_to_measure(request, restorer, observer);
  const std::vector<ClipScores> scores =
      measure(restorer, clips, request.restore.overrides, [&](std::int64_t done, std::int64_t total) {
        observer.frames_done(done, total);
        return !observer.stop_requested();
      });
  const ClipScores all = overall(scores);
  result.ours = numbers(all.ours);
  result.bicubic = numbers(all.bicubic);
  for (const ClipScores& one : scores) {
    result.clips.push_back({one.name, one.frames, numbers(one.ours), numbers(one.bicubic)});
  }
}

void preview_session(const PreviewRequest& request, Observer& observer) {
  Restorer restorer = make_restorer(request.restore);
  const Script script = open_named_clip(request.clip.path, open_options(request.clip, observer));
  ValidationClip clip{request.clip.path.filename().string()};
  if (script.output(0) && script.output(1)) {
    clip.pair = training_pair(script, restorer.info().scale);
  } else {
    clip.pair.input = input_clip(script);
  }
  const std::int64_t frames = clip.pair.input.info().frames;
  if (request.frame < 0 || request.frame >= frames) {
    fail_usage(fmt::format("--frame {}: {} has frames 0 to {}", request.frame, clip.name, frames - 1));
  }
  write_png(request.output, comparison(restorer, clip, request.frame, request.restore.overrides));
}

}  // namespace reelgrad
