#include "reelgrad/data/wait_meter.h"

#include <algorithm>
#include <utility>

namespace reelgrad {
namespace {

constexpr std::chrono::microseconds kNoise{100};  // taking a lock is no wait

}  // namespace

void WaitMeter::add(Clock::time_point begin, Clock::time_point end) {
  untaken_ += seconds_between(begin, end);
  if (start_ && end - begin > kNoise) recent_.push_back({begin, end});
}

double WaitMeter::take_seconds() {
  return std::exchange(untaken_, 0.0);
}

std::optional<double> WaitMeter::share(Clock::time_point now) {
  if (!start_ || seconds_between(*start_, now) < window_.count()) return std::nullopt;
  const auto window_begin = now - std::chrono::duration_cast<Clock::duration>(window_);
  while (!recent_.empty() && recent_.front().end <= window_begin) recent_.pop_front();
  double waited = 0;
  for (const Wait& wait : recent_) waited += seconds_between(std::max(wait.begin, window_begin), wait.end);
  return waited / window_.count();
}

}  // namespace reelgrad
