#include "reelgrad/clip/window_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "reelgrad/base/error.h"

namespace reelgrad {
namespace {

FrameRange reach_of(std::int64_t n, std::int64_t frames, int window, bool segments) {
  return segments ? segment_reach(n, frames, window) : window_reach(n, frames, window);
}

FrameRange needed_frames(std::int64_t frames, FrameRange range, int window, bool segments) {
  if (range.size() == 0) return range;
  return {reach_of(range.begin, frames, window, segments).begin, reach_of(range.end - 1, frames, window, segments).end};
}

FrameStream stream_of(const Clip& clip, FrameRange frames) {
  return FrameStream(clip, frames.begin, frames.size());
}

}  // namespace

WindowReader::WindowReader(const Clip& clip, FrameRange range, int window, const WindowOptions& options)
    : range_(range),
      frames_(clip.info().frames),
      size_(window),
      options_(options),
      name_(clip.name()),
      stream_(stream_of(clip, needed_frames(frames_, range, window, options.segments))),
      restored_{range.begin, range.begin} {}

std::vector<FrameView> WindowReader::next() {
  const std::int64_t n = restored_.end;
  if (n >= range_.end) fail(fmt::format("{}: no frame of the range is left", name_));
  decode(reach(n));
  latest_.clear();
  for (const std::int64_t number : choose(n)) latest_.push_back(decoded(number));
  std::vector<FrameView> views;
  for (const Frame& frame : latest_) views.push_back(frame.view());
  return views;
}

FrameRange WindowReader::reach(std::int64_t n) const {
  return reach_of(n, frames_, size_, options_.segments);
}

void WindowReader::decode(FrameRange frames) {
  while (!decoded_.empty() && decoded_.front().number() < frames.begin) decoded_.pop_front();
  while (decoded_.empty() || decoded_.back().number() + 1 < frames.end) {
    std::optional<Frame> frame = stream_.next();
    if (!frame) fail(fmt::format("{}: no frame of the range is left", name_));
    decoded_.push_back(*std::move(frame));
  }
}

const Frame& WindowReader::decoded(std::int64_t n) const {
  return decoded_[static_cast<std::size_t>(n - decoded_.front().number())];
}

bool WindowReader::begins_scene(std::int64_t n) const {
  if (!options_.scene_cuts) return false;
  return decoded(n).begins_scene().value_or(false) || decoded(n - 1).ends_scene().value_or(false);
}

std::vector<std::int64_t> WindowReader::choose(std::int64_t n) {
  const auto begins = [this](std::int64_t frame) { return begins_scene(frame); };
  if (!options_.segments) {
    restored_ = {n, n + 1};
    return window_frames(n, frames_, size_, options_.ends, begins);
  }
  WindowSegment segment = segment_of(n, frames_, size_, options_.ends, begins);
  restored_ = {n, std::min(segment.own.end, range_.end)};
  return std::move(segment.frames);
}

}  // namespace reelgrad
