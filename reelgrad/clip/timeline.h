#pragma once
#include <cstdint>

#include "reelgrad/clip/video_format.h"

namespace reelgrad {

// True where a frame of this duration belongs to a clip of this constant rate: exactly, or within the millisecond to
// which Matroska rounds. False where the rate or the duration is not set.
bool fits_rate(Rational duration, Rational fps);

// Turns a sequence of durations into timestamps without drift: the sum is kept exactly, only what is handed out is
// rounded to the tick, and nothing is rounded where every duration is a whole number of ticks.
class Timeline {
 public:
  // What has passed: of a Timeline of the same fps, to go on from.
  struct Position {
    std::int64_t ticks = 0;
    Rational rest;  // of a tick, in [0, 1)
    bool operator==(const Position&) const = default;
  };

  // 1 / fps for frames without a duration; where that is 0/1, too, 1/25 s.
  explicit Timeline(Rational fps);
  Timeline(Rational fps, Position from) : Timeline(fps) { at_ = from; }

  // Ticks a second: fits the usual frame rates (also those over 1001), milliseconds and MPEG's 90 kHz, and this fps.
  std::int64_t ticks_per_second() const { return rate_; }

  std::int64_t now() const;  // in ticks
  void advance(Rational duration);
  Position position() const { return at_; }

 private:
  std::int64_t rate_;
  Rational default_duration_;
  Position at_;
};

}  // namespace reelgrad
