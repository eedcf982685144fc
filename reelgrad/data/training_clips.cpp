#include <fmt/format.h>

#include <map>
#include <numeric>

#include "reelgrad/base/error.h"
#include "reelgrad/base/philox.h"
#include "reelgrad/base/text.h"
#include "reelgrad/data/loader.h"
#include "reelgrad/frames/gpu_plane_import.h"

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

constexpr std::uint32_t kImageOrder = 0x494D'0000;  // purpose of the Philox streams; the pairs' index is added

// The images of a folder in an order of its own: neighbours by name are often cut from one picture, and segments hold
// neighbours.
std::vector<std::size_t> drawn_order(const std::vector<FrameRange>& ranges, std::uint64_t seed, std::size_t pairs) {
  std::vector<std::size_t> order;
  for (const FrameRange& range : ranges) {
    for (std::int64_t i = range.begin; i < range.end; ++i) order.push_back(static_cast<std::size_t>(i));
  }
  PhiloxStream stream(seed, kImageOrder + static_cast<std::uint32_t>(pairs), 0);
  shuffle(order, stream);
  return order;
}

std::vector<FrameRange> training_images(const Config& config, const std::string& name, std::int64_t images) {
  const FrameRange all{0, images};
  if (config.validation.frames.empty()) return {all};
  const FrameRange validation = parse_frame_range(config.validation.frames, images, "validation.frames");
  std::vector<FrameRange> left = without(all, validation);
  if (left.empty()) {
    fail_usage(fmt::format("{}: validation.frames = \"{}\" leaves none of the {} images to train on", name,
                           config.validation.frames, images));
  }
  return left;
}

void check_crop(const ImagePair& pair, int crop_px, const std::string& name) {
  const int side = std::min(pair.size.width, pair.size.height);
  if (side >= crop_px) return;
  fail_usage(
      fmt::format("{}: {} is {}x{}, but data.crop_px = {}: allowed with it are 8 to {}; or take it out of the "
                  "folders",
                  name, pair.input.string(), pair.size.width, pair.size.height, crop_px, side));
}

TrainingClip open_pairs(const Config& config, std::size_t index, const OpenOptions& options) {
  const PairsConfig& pairs = config.data.pairs[index];
  TrainingClip clip;
  clip.images = ImagePairs::open(pairs.input, pairs.target, config.model.scale, options);
  const std::vector<ImagePair>& list = clip.images->list();
  const std::string name = fmt::format("data.pairs: {}", pairs.input.string());
  const std::vector<std::size_t> order =
      drawn_order(training_images(config, name, static_cast<std::int64_t>(list.size())), config.run.seed, index);
  auto sizes = std::make_shared<std::vector<PictureSize>>();
  for (const std::size_t i : order) {
    check_crop(list[i], config.data.crop_px, name);
    sizes->push_back(list[i].size);
  }
  clip.pair = clip.images->clips(order);
  clip.name = clip.pair.target.name();
  const ClipInfo& input = clip.pair.input.info();
  clip.span = {.script = static_cast<int>(config.data.script.size() + index),
               .begin = 0,
               .end = input.frames,
               .weight = pairs.weight,
               .width = input.width,
               .height = input.height,
               .name = name,
               .sizes = std::move(sizes)};
  return clip;
}

}  // namespace

SamplerConfig sampler_config(const Config& config) {
  const DataConfig& data = config.data;
  return {.seed = config.run.seed,
          .batch = data.batch * config.optimizer.accumulate,
          .crop_px = data.crop_px,
          .window = data.window,
          .frame_step = data.frame_step,
          .targets = sample_frames(config),
          .segment_frames = data.segment_frames,
          .pool_frames = data.pool_frames,
          .reuse = data.reuse,
          .augment = data.augment};
}

std::vector<TrainingClip> open_training_clips(const Config& config,
                                              const std::function<Script(const ScriptConfig&)>& open,
                                              const OpenOptions& for_images) {
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
                        .name = fmt::format("data.script: {}", script.path.string())},
                       script.path.filename().string(),
                       std::nullopt});
    }
    drop_short(parts, sampler);
    for (const TrainingClip& part : parts) check_span(part.span, sampler);
    clips.insert(clips.end(), parts.begin(), parts.end());
  }
  for (std::size_t i = 0; i < config.data.pairs.size(); ++i) {
    clips.push_back(open_pairs(config, i, for_images));
    check_span(clips.back().span, sampler);
  }
  return clips;
}

void keep_on_card(std::vector<TrainingClip>& clips, torch::Device device) {
  if (!device.is_cuda()) return;
  const CudaFrameTarget card(device);
  std::map<int, ClipPair> kept;  // by script, which may have given several spans
  for (TrainingClip& clip : clips) {
    const auto [entry, is_new] = kept.try_emplace(clip.span.script);
    if (is_new) entry->second = clip.pair.on_gpu(card);
    clip.pair = entry->second;
  }
}

}  // namespace reelgrad
