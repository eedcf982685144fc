#pragma once

namespace reelgrad {

// While it lives, operations that the calling thread runs on the CPU are spread over `count` threads; other threads
// keep what they have.
class HostThreads {
 public:
  explicit HostThreads(int count);
  HostThreads(const HostThreads&) = delete;
  HostThreads& operator=(const HostThreads&) = delete;
  ~HostThreads();

 private:
  int before_;
};

}  // namespace reelgrad
