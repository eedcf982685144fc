#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "reelgrad/clip/clip.h"

namespace reelgrad {

struct StreamOptions {
  int in_flight = 0;                              // requests at a time; 0: VapourSynth's threads
  std::int64_t budget_bytes = 256 * 1024 * 1024;  // frames requested and not yet taken never exceed it (at least one)
};

// Frames of one clip, asked for ahead and delivered in the given order.
class FrameStream {
 public:
  FrameStream(Clip clip, std::int64_t first, std::int64_t count, StreamOptions options = {});
  FrameStream(Clip clip, std::vector<std::int64_t> frames, StreamOptions options = {});
  FrameStream(FrameStream&&) noexcept;
  FrameStream& operator=(FrameStream&&) noexcept;
  ~FrameStream();  // cancels, and waits for requests in flight

  // Waits for the next frame; nullopt at the end. Throws the frame's error, as Clip::frame does. One consumer thread.
  std::optional<Frame> next();

  // From any thread: next() returns nullopt from now on.
  void cancel();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reelgrad
