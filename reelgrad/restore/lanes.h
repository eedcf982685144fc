#pragma once
#include <ATen/Parallel.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "reelgrad/base/queue.h"
#include "reelgrad/restore/lane.h"

namespace reelgrad {

// Lanes that threads take turns with; on the CPU they share its threads. Thread-safe.
class Lanes {
 public:
  Lanes(int count, const std::shared_ptr<const TileFunction>& function, torch::Device device, bool capture)
      : free_(static_cast<std::size_t>(count)) {
    const int host_threads = std::max(1, at::get_num_threads() / count);
    for (int i = 0; i < count; ++i) {
      lanes_.push_back(std::make_unique<Lane>(function, device, capture, host_threads));
      free_.push(i);
    }
  }

  // Calls `work(lane)` with one that nobody else has; waits for one.
  template <class Work>
  void with_one(const Work& work) {
    const int index = *free_.pop();
    const Return at_end{free_, index};
    work(*lanes_[static_cast<std::size_t>(index)]);
  }

  // One after another; nobody restores meanwhile.
  template <class Work>
  void each(const Work& work) {
    for (const auto& lane : lanes_) work(*lane);
  }

  int count() const { return static_cast<int>(lanes_.size()); }

 private:
  struct Return {
    BoundedQueue<int>& free;
    int index;
    ~Return() { free.push(index); }
  };

  std::vector<std::unique_ptr<Lane>> lanes_;
  BoundedQueue<int> free_;
};

}  // namespace reelgrad
