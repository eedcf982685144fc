#include <fmt/format.h>

#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/base/text.h"
#include "reelgrad/data/loader.h"

namespace reelgrad {
namespace {

FrameRange configured_range(const ScriptConfig& script, std::int64_t frames) {
  const FrameRange range{script.start, script.end < 0 ? frames : script.end};
  if (range.begin < 0 || range.begin >= range.end || range.end > frames) {
    fail_usage(
        fmt::format("data.script: {}: start = {} and end = {} are frames {} to {} (not included), but the clip has "
                    "{} frames",
                    script.path.string(), script.start, script.end, range.begin, range.end, frames));
  }
  return range;
}

// What is left of `range` without the frames of validation.
std::vector<FrameRange> without(const FrameRange& range, const FrameRange& validation) {
  std::vector<FrameRange> left;
  for (const FrameRange part : {FrameRange{range.begin, std::min(range.end, validation.begin)},
                                FrameRange{std::max(range.begin, validation.end), range.end}}) {
    if (part.begin < part.end) left.push_back(part);
  }
  return left;
}

std::vector<FrameRange> training_ranges(const Config& config, const ScriptConfig& script, std::int64_t frames) {
  const FrameRange range = configured_range(script, frames);
  if (config.validation.frames.empty()) return {range};
  const FrameRange validation = parse_frame_range(config.validation.frames, frames, "validation.frames");
  std::vector<FrameRange> left = without(range, validation);
  if (left.empty()) {
    fail_usage(
        fmt::format("data.script: {}: validation.frames = \"{}\" (frames {} to {}) leaves nothing of the frames {} "
                    "to {} to train on",
                    script.path.string(), config.validation.frames, validation.begin, validation.end - 1, range.begin,
                    range.end - 1));
  }
  return left;
}

// Parts shorter than a window are of no use, unless there is nothing else: then check_span says what is wrong.
void drop_short(std::vector<TrainingClip>& clips, const SamplerConfig& sampler) {
  const auto is_short = [&](const TrainingClip& clip) {
    return clip.span.end - clip.span.begin < sampler.window_reach();
  };
  if (std::all_of(clips.begin(), clips.end(), is_short)) return;
  std::erase_if(clips, is_short);
}

}  // namespace

SamplerConfig sampler_config(const Config& config) {
  const DataConfig& data = config.data;
  return {.seed = config.run.seed,
          .batch = data.batch * config.optimizer.accumulate,
          .crop_px = data.crop_px,
          .window = data.window,
          .frame_step = data.frame_step,
          .segment_frames = data.segment_frames,
          .pool_frames = data.pool_frames,
          .reuse = data.reuse,
          .augment = data.augment};
}

std::vector<TrainingClip> open_training_clips(const Config& config,
                                              const std::function<Script(const ScriptConfig&)>& open) {
  const SamplerConfig sampler = sampler_config(config);
  std::vector<TrainingClip> clips;
  for (std::size_t i = 0; i < config.data.script.size(); ++i) {
    const ScriptConfig& script = config.data.script[i];
    const ClipPair pair = training_pair(open(script), config.model.scale);
    const ClipInfo& input = pair.input.info();
    std::vector<TrainingClip> parts;
    for (const FrameRange& range : training_ranges(config, script, input.frames)) {
      parts.push_back({pair,
                       {.script = static_cast<int>(i),
                        .begin = range.begin,
                        .end = range.end,
                        .weight = script.weight,
                        .width = input.width,
                        .height = input.height,
                        .name = fmt::format("data.script: {}", script.path.string())}});
    }
    drop_short(parts, sampler);
    for (const TrainingClip& part : parts) check_span(part.span, sampler);
    clips.insert(clips.end(), parts.begin(), parts.end());
  }
  return clips;
}

}  // namespace reelgrad
