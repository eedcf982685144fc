#pragma once
#include <deque>
#include <vector>

#include "reelgrad/base/text.h"
#include "reelgrad/clip/clip.h"
#include "reelgrad/clip/frame_stream.h"

namespace reelgrad {

// What a network sees of a clip: the frames around each frame of a range in turn, each decoded once and ahead. A
// clip's first and last frame stand for what lies beyond its ends; beyond the range's ends are the clip's own frames.
// One thread.
class WindowReader {
 public:
  // `window` frames, an odd number, in the order of time; the range's frame is in the middle. The range lies within the
  // clip.
  WindowReader(const Clip& clip, FrameRange range, int window);

  // Waits for the window of the next frame of the range. The views are valid until the next call. Throws a frame's
  // error, as Clip::frame does; failed when there have been as many calls as the range has frames.
  std::vector<FrameView> next();

  // The middle frame of the latest window. Call next() first.
  const Frame& middle() const { return frames_[frames_.size() / 2]; }

 private:
  std::size_t window_;
  std::string name_;
  FrameStream stream_;
  std::deque<Frame> frames_;
};

}  // namespace reelgrad
