#include "reelgrad/clip/window_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "reelgrad/base/error.h"

namespace reelgrad {
namespace {

std::vector<std::int64_t> needed_frames(std::int64_t frames, FrameRange range, int radius) {
  std::vector<std::int64_t> numbers;
  for (std::int64_t n = range.begin - radius; n < range.end + radius; ++n) {
    numbers.push_back(std::clamp<std::int64_t>(n, 0, frames - 1));
  }
  return numbers;
}

}  // namespace

WindowReader::WindowReader(const Clip& clip, FrameRange range, int window)
    : window_(static_cast<std::size_t>(window)),
      name_(clip.name()),
      stream_(clip, needed_frames(clip.info().frames, range, window / 2)) {}

std::vector<FrameView> WindowReader::next() {
  if (!frames_.empty()) frames_.pop_front();
  while (frames_.size() < window_) {
    std::optional<Frame> frame = stream_.next();
    if (!frame) fail(fmt::format("{}: no frame of the range is left", name_));
    frames_.push_back(*std::move(frame));
  }
  std::vector<FrameView> views;
  for (const Frame& frame : frames_) views.push_back(frame.view());
  return views;
}

}  // namespace reelgrad
