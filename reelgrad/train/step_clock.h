#pragma once
#include <chrono>

namespace reelgrad {

// Time spent in steps: paused during validation and saving, so that it/s means training.
class StepClock {
 public:
  void restart() {
    spent_ = {};
    running_since_ = Clock::now();
  }
  void pause() { spent_ += Clock::now() - running_since_; }
  void resume() { running_since_ = Clock::now(); }
  double seconds() const { return std::chrono::duration<double>(spent_ + (Clock::now() - running_since_)).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::duration spent_{};
  Clock::time_point running_since_ = Clock::now();
};

}  // namespace reelgrad
