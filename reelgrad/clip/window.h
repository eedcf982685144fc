// Which frames of a clip a network sees at once: numbers alone, so that the plugin, `apply` and validation choose
// alike.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "reelgrad/base/text.h"

namespace reelgrad {

// What stands for the frames beyond a scene's ends: its first and last frame, or those on the other side of them.
enum class WindowEnds { repeat, mirror };

// Whether a frame is the first of a scene. Asked only of frames within the reach, but for the reach's first.
using BeginsScene = std::function<bool(std::int64_t frame)>;

// The frames that decide about the window around frame `n` of `frames`: no other is in it. `window` is an odd number.
FrameRange window_reach(std::int64_t n, std::int64_t frames, int window);

// The `window` frames around `n`, in the order of time, all of n's scene; n is in the middle.
std::vector<std::int64_t> window_frames(std::int64_t n, std::int64_t frames, int window, WindowEnds ends,
                                        const BeginsScene& begins_scene);

// A network that restores all of its window is given a clip in segments: they begin at multiples of the window and at
// cuts, whatever frame is asked for, so that a frame is the same in any order.
struct WindowSegment {
  FrameRange own;                    // the frames that it restores
  std::vector<std::int64_t> frames;  // what the network sees: own, and then what stands for frames beyond its end
};

// The frames that decide about the segment of frame `n`: no other is in it.
FrameRange segment_reach(std::int64_t n, std::int64_t frames, int window);

WindowSegment segment_of(std::int64_t n, std::int64_t frames, int window, WindowEnds ends,
                         const BeginsScene& begins_scene);

}  // namespace reelgrad
