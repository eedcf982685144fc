#include "reelgrad/data/segment_content.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "reelgrad/base/error.h"
#include "reelgrad/data/cut_detector.h"

namespace reelgrad {
namespace {

std::optional<bool> either_of(std::optional<bool> a, std::optional<bool> b) {
  if (!a || !b) return a ? a : b;
  return *a || *b;
}

bool has_props(const FrameContent& frame) {
  return frame.scene.begins || frame.scene.ends;
}

std::vector<bool> cuts_of_props(std::span<const FrameContent> frames) {
  std::vector<bool> cuts(frames.size(), false);
  for (std::size_t i = 1; i < frames.size(); ++i) {
    cuts[i] = frames[i].scene.begins.value_or(false) || frames[i - 1].scene.ends.value_or(false);
  }
  return cuts;
}

std::vector<bool> cuts_of_pictures(std::span<const FrameContent> frames) {
  std::vector<const PictureSummary*> pictures;
  std::vector<std::size_t> offsets;
  for (std::size_t i = 0; i < frames.size(); ++i) {
    if (i > 0 && frames[i].repeats) continue;
    pictures.push_back(&frames[i].summary);
    offsets.push_back(i);
  }
  const std::vector<bool> detected = detect_cuts(pictures);
  std::vector<bool> cuts(frames.size(), false);
  for (std::size_t k = 0; k < detected.size(); ++k) cuts[offsets[k]] = detected[k];
  return cuts;
}

std::vector<bool> cuts_of(std::span<const FrameContent> frames, SceneCuts cuts) {
  if (cuts == SceneCuts::off) return std::vector<bool>(frames.size(), false);
  if (cuts == SceneCuts::props || std::ranges::any_of(frames, has_props)) return cuts_of_props(frames);
  return cuts_of_pictures(frames);
}

// Windows that a scene of `frames` frames gives.
std::int64_t windows_in(std::int64_t frames, std::int64_t reach) {
  return frames >= reach ? frames - reach + 1 : frames;
}

}  // namespace

SceneCuts parse_scene_cuts(std::string_view text) {
  if (text == "auto") return SceneCuts::automatic;
  if (text == "props") return SceneCuts::props;
  if (text == "off") return SceneCuts::off;
  fail_usage("data.scene_cuts: unknown \"" + std::string(text) + "\" (known: auto, props, off)");
}

SceneProps either_of(const SceneProps& a, const SceneProps& b) {
  return {either_of(a.begins, b.begins), either_of(a.ends, b.ends)};
}

SegmentContent segment_content(std::span<const FrameContent> frames, SceneCuts mode) {
  const std::vector<bool> cuts = cuts_of(frames, mode);
  SegmentContent content;
  bool begins = true;  // stays set over frames that repeat: properties may call one of them the first of a scene
  for (std::size_t i = 0; i < frames.size(); ++i) {
    begins = begins || cuts[i];
    if (i > 0 && frames[i].repeats) continue;
    if (begins) content.scenes.emplace_back();
    content.scenes.back().push_back(static_cast<int>(i));
    begins = false;
  }
  return content;
}

SegmentContent plain_content(int frames) {
  SegmentContent content{{std::vector<int>(static_cast<std::size_t>(frames))}};
  std::iota(content.scenes[0].begin(), content.scenes[0].end(), 0);
  return content;
}

std::vector<int> place_window(std::uint32_t draw, const SegmentContent& content, int window, int frame_step) {
  const std::int64_t reach = std::int64_t{window - 1} * frame_step + 1;
  std::int64_t windows = 0;
  for (const std::vector<int>& scene : content.scenes) {
    windows += windows_in(static_cast<std::int64_t>(scene.size()), reach);
  }
  std::int64_t place = (std::int64_t{draw} * windows) >> 32;
  auto scene = content.scenes.begin();
  while (place >= windows_in(static_cast<std::int64_t>(scene->size()), reach)) {
    place -= windows_in(static_cast<std::int64_t>(scene->size()), reach);
    ++scene;
  }
  const auto frames = static_cast<std::int64_t>(scene->size());
  const std::int64_t first = frames >= reach ? place : place - std::int64_t{window / 2} * frame_step;
  std::vector<int> offsets;
  for (int t = 0; t < window; ++t) {
    const std::int64_t at = std::clamp<std::int64_t>(first + std::int64_t{t} * frame_step, 0, frames - 1);
    offsets.push_back((*scene)[static_cast<std::size_t>(at)]);
  }
  return offsets;
}

}  // namespace reelgrad
