#pragma once
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <set>

namespace reelgrad::vs {

// So many threads at a time; of those that wait, the one with the lowest frame goes first, since what the session keeps
// of frames serves those after them. Thread-safe.
class Tickets {
 public:
  explicit Tickets(int count) : free_(count) {}

  void acquire(std::int64_t frame) {
    std::unique_lock lock(mutex_);
    const auto place = waiting_.insert(frame);
    changed_.wait(lock, [&] { return free_ > 0 && place == waiting_.begin(); });
    waiting_.erase(place);
    if (--free_ > 0) changed_.notify_all();  // it is the next one's turn
  }

  void release() {
    const std::lock_guard lock(mutex_);
    ++free_;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::multiset<std::int64_t> waiting_;
  int free_;
};

class Ticket {
 public:
  Ticket(Tickets& tickets, std::int64_t frame) : tickets_(tickets) { tickets_.acquire(frame); }
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;
  ~Ticket() { tickets_.release(); }

 private:
  Tickets& tickets_;
};

}  // namespace reelgrad::vs
