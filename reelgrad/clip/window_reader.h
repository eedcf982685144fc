#pragma once
#include <deque>
#include <vector>

#include "reelgrad/base/text.h"
#include "reelgrad/clip/clip.h"
#include "reelgrad/clip/frame_stream.h"
#include "reelgrad/clip/window.h"

namespace reelgrad {

struct WindowOptions {
  WindowEnds ends = WindowEnds::repeat;
  bool scene_cuts = true;  // a cut, by the frames' properties, is an end
  // The network restores all of its window: next() gives segments (segment_of), each once.
  bool segments = false;
};

// What a network sees of a clip: the windows of the frames of a range in turn, each frame decoded once and ahead.
// Beyond the range's ends are the clip's own frames. One thread.
class WindowReader {
 public:
  // `window` frames, an odd number unless they are segments. The range lies within the clip.
  WindowReader(const Clip& clip, FrameRange range, int window, const WindowOptions& options = {});

  // Waits for the next window. The views are valid until the next call, or as long as copies of window() live. Throws a
  // frame's error, as Clip::frame does; failed when the range has been read.
  std::vector<FrameView> next();

  // Of the latest window. Call next() first.
  const std::vector<Frame>& window() const { return latest_; }  // what next() gave, with its numbers
  const Frame& middle() const { return latest_[latest_.size() / 2]; }
  FrameRange restored() const { return restored_; }  // its frames in the range: one, unless it is a segment

 private:
  FrameRange reach(std::int64_t n) const;
  void decode(FrameRange frames);
  const Frame& decoded(std::int64_t n) const;
  bool begins_scene(std::int64_t n) const;
  std::vector<std::int64_t> choose(std::int64_t n);

  FrameRange range_;
  std::int64_t frames_;
  int size_;
  WindowOptions options_;
  std::string name_;
  FrameStream stream_;
  std::deque<Frame> decoded_;  // in a row
  std::vector<Frame> latest_;
  FrameRange restored_;
};

}  // namespace reelgrad
