#pragma once
#include <c10/core/Event.h>
#include <torch/types.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "reelgrad/clip/frame.h"
#include "reelgrad/kernels/color.h"

namespace reelgrad {

// Frames of a clip in the order of time, and how they are read: the same name is the same tensor.
struct NamedFrames {
  std::vector<std::int64_t> numbers;
  ColorSpec color;
  NetworkColor picture = NetworkColor::rgb;
  bool operator==(const NamedFrames&) const = default;

  NamedFrames part(int first, int count) const {
    return {{numbers.begin() + first, numbers.begin() + first + count}, color, picture};
  }
};

// What a network's first stage made of parts of windows (WindowStages), on its device, kept for the windows of other
// frames: a fixed number of slots, of which the one that was asked for longest ago is taken again. Thread-safe.
class PartCache {
 public:
  PartCache(int slots, torch::Device device) : device_(device), slots_(static_cast<std::size_t>(slots)) {}

  // Takes the memory of all slots, for tensors like this one, before the first Held; the first of several counts.
  // Without it, each takes its own when it is first used.
  void allocate(const torch::Tensor& like);

  // The slots of a window's parts.
  class Held;

 private:
  enum class State { empty, making, ready };
  struct Slot {
    State state = State::empty;
    NamedFrames name;
    torch::Tensor features;
    std::unique_ptr<c10::Event> written;  // of a card
    int holders = 0;
    std::int64_t asked = 0;  // 0: never, else when
  };
  Slot* find(const NamedFrames& name);
  Slot* longest_unused();
  void allocate(Slot& slot, const torch::Tensor& like);
  void write(Slot& slot, const torch::Tensor& features);
  bool wait(Slot& slot);

  torch::Device device_;
  std::vector<Slot> slots_;
  std::mutex mutex_;  // guards all of the slots but their tensors and events, which their makers write
  std::condition_variable changed_;
  std::int64_t asked_ = 0;
};

// From its construction on the slots of these parts (none where there is no name) stay what they are, or are to be made
// by this thread. It must live until the stream has run what give() queued. What was not made by then is kept by
// nobody.
class PartCache::Held {
 public:
  using Make = std::function<torch::Tensor(int part)>;
  using Take = std::function<void(int part, const torch::Tensor& features)>;

  Held(PartCache& cache, const std::vector<std::optional<NamedFrames>>& parts);
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held();

  // Once. Calls `take` with every part, in some order: with what is kept, or what another thread is making, which is
  // waited for; else with what `make` gives. Both work on the current stream. What this thread has to make it makes
  // before it waits, so that no two wait for one another; what another one failed to make it makes too.
  void give(const Make& make, const Take& take);

 private:
  struct Part {
    Slot* slot = nullptr;  // null: it is not kept
    bool ours = false;     // to make
    bool of_others() const { return slot != nullptr && !ours; }
  };
  Part claim(const NamedFrames& name);

  PartCache& cache_;
  std::vector<Part> parts_;
};

}  // namespace reelgrad
