#include "reelgrad/clip/window.h"

#include <algorithm>

namespace reelgrad {
namespace {

// The part of the reach that is n's scene.
FrameRange scene_within(std::int64_t n, FrameRange reach, const BeginsScene& begins_scene) {
  FrameRange scene{n, n + 1};
  while (scene.begin > reach.begin && !begins_scene(scene.begin)) --scene.begin;
  while (scene.end < reach.end && !begins_scene(scene.end)) ++scene.end;
  return scene;
}

std::int64_t mirrored(std::int64_t frame, FrameRange scene) {
  if (scene.size() == 1) return scene.begin;
  const std::int64_t period = 2 * (scene.size() - 1);
  const std::int64_t place = ((frame - scene.begin) % period + period) % period;
  return scene.begin + std::min(place, period - place);
}

// What stands for a frame, which may lie beyond the scene.
std::int64_t stand_in(std::int64_t frame, FrameRange scene, WindowEnds ends) {
  return ends == WindowEnds::mirror ? mirrored(frame, scene) : std::clamp(frame, scene.begin, scene.end - 1);
}

std::vector<std::int64_t> stand_ins(std::int64_t first, int count, FrameRange scene, WindowEnds ends) {
  std::vector<std::int64_t> frames;
  for (int i = 0; i < count; ++i) frames.push_back(stand_in(first + i, scene, ends));
  return frames;
}

}  // namespace

FrameRange window_reach(std::int64_t n, std::int64_t frames, int window) {
  const int radius = window / 2;
  return {std::max<std::int64_t>(0, n - radius), std::min(frames, n + radius + 1)};
}

std::vector<std::int64_t> window_frames(std::int64_t n, std::int64_t frames, int window, WindowEnds ends,
                                        const BeginsScene& begins_scene) {
  const FrameRange scene = scene_within(n, window_reach(n, frames, window), begins_scene);
  return stand_ins(n - window / 2, window, scene, ends);
}

FrameRange segment_reach(std::int64_t n, std::int64_t frames, int window) {
  const std::int64_t begin = n / window * window;
  return {begin, std::min(frames, begin + window)};
}

WindowSegment segment_of(std::int64_t n, std::int64_t frames, int window, WindowEnds ends,
                         const BeginsScene& begins_scene) {
  const FrameRange own = scene_within(n, segment_reach(n, frames, window), begins_scene);
  return {own, stand_ins(own.begin, window, own, ends)};
}

}  // namespace reelgrad
