// How much of the time training waits for frames.
#pragma once
#include <chrono>
#include <deque>
#include <optional>

namespace reelgrad {

inline double seconds_between(std::chrono::steady_clock::time_point begin, std::chrono::steady_clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

// Not thread-safe. Times are given by the caller, in rising order.
class WaitMeter {
 public:
  using Clock = std::chrono::steady_clock;

  explicit WaitMeter(std::chrono::duration<double> window) : window_(window) {}

  // Starts the watch: what came before, such as the wait for the first fill of the pool, tells nothing of the pace.
  void start(Clock::time_point now) { start_ = now; }
  bool started() const { return start_.has_value(); }

  void add(Clock::time_point begin, Clock::time_point end);

  // Seconds of all waits added since the last call.
  double take_seconds();

  // Of the window that ends at `now`; nullopt until a whole one has passed since the start.
  std::optional<double> share(Clock::time_point now);

 private:
  struct Wait {
    Clock::time_point begin, end;
  };
  std::chrono::duration<double> window_;
  std::optional<Clock::time_point> start_;
  std::deque<Wait> recent_;
  double untaken_ = 0;
};

}  // namespace reelgrad
