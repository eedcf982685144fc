// What of a segment windows may be made of: its frames without those that repeat the one before, scene by scene.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "reelgrad/kernels/picture_summary.h"

namespace reelgrad {

// data.scene_cuts. automatic: as `props` in segments of which a frame has such a property, else the cut detector.
enum class SceneCuts { automatic, props, off };
SceneCuts parse_scene_cuts(std::string_view text);  // "auto", "props", "off"

// _SceneChangePrev and _SceneChangeNext of a frame; not set where it has none.
struct SceneProps {
  std::optional<bool> begins, ends;  // a scene
};

// Where both sides of a training pair carry properties, a scene begins or ends where either says so.
SceneProps either_of(const SceneProps& a, const SceneProps& b);

struct FrameContent {
  SceneProps scene;
  bool repeats = false;  // the target and the input both have the very samples of the frame before; the first: false
  // Of the input: the windows are made of it, it is the smaller side, and the one that there is in use as well.
  // Read with SceneCuts::automatic only.
  PictureSummary summary;
};

// Offsets in the segment, rising, in scenes that follow each other; none is empty, and neither is the list. A pure
// function of the segment's frames: it may be computed anywhere, any number of times.
struct SegmentContent {
  std::vector<std::vector<int>> scenes;
  bool operator==(const SegmentContent&) const = default;
};

// `frames`: all of a segment, at least one.
SegmentContent segment_content(std::span<const FrameContent> frames, SceneCuts cuts);

// One scene of `frames` different frames.
SegmentContent plain_content(int frames);

// The frames of a window, `window` offsets in the segment, `frame_step` apart in what is left of their scene. `draw` is
// uniform over the windows that there are: in a scene as long as a window reaches, all that lie within it; in a shorter
// one, one around each frame, with the scene's first and last frames repeated as at a clip's ends.
std::vector<int> place_window(std::uint32_t draw, const SegmentContent& content, int window, int frame_step);

}  // namespace reelgrad
