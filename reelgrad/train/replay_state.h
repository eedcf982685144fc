// What a forward pass depends on besides its inputs and weights, to run it a second time.
#pragma once
#include <torch/types.h>

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace reelgrad {

// Whether what this thread's current stream is given goes into a CUDA graph. False for the CPU.
bool is_captured(torch::Device device);

// The default generators of the CPU and of one device. Also during the capture of a CUDA graph: there it is the
// position within the graph, which every replay adds to the generator's own.
class RandomState {
 public:
  // Throws if `device` is being captured and now() was never called for it before.
  static RandomState now(torch::Device device);
  void restore() const;

 private:
  explicit RandomState(torch::Device device) : device_(device) {}

  torch::Device device_;
  torch::Tensor cpu_;
  torch::Tensor card_;  // undefined on the CPU and while captured
  std::uint64_t captured_offset_ = 0;
};

// Where a card's default generator is. After a capture that broke, torch's state of it is of no use: renew() gives the
// generator another one, at the same place.
class GeneratorPlace {
 public:
  explicit GeneratorPlace(torch::Device card);
  void renew() const;

 private:
  torch::Device device_;
  std::uint64_t seed_ = 0, offset_ = 0;
};

// Autocast of this thread, for the CPU and for cards.
class AutocastState {
 public:
  static AutocastState now();
  void restore() const;

 private:
  struct One {
    bool enabled;
    torch::ScalarType dtype;
  };
  std::array<One, 2> states_{};
};

// While it lives no cast of a weight is put into autocast's cache or taken from it: a cast made without gradients, or
// in a graph that is gone by then, must not meet one that needs them.
class WithoutCastCache {
 public:
  WithoutCastCache();
  WithoutCastCache(const WithoutCastCache&) = delete;
  WithoutCastCache& operator=(const WithoutCastCache&) = delete;
  ~WithoutCastCache();

 private:
  bool previous_;
};

// Buffers that a forward pass changes (running statistics), to be put back.
class BufferState {
 public:
  explicit BufferState(std::vector<torch::Tensor> buffers);
  void restore();

 private:
  std::vector<torch::Tensor> buffers_, copies_;
};

class ReplayState {
 public:
  static ReplayState now(torch::Device device) { return {device, RandomState::now(device), AutocastState::now()}; }

 private:
  ReplayState(torch::Device device, RandomState random, AutocastState autocast)
      : device_(device), random_(std::move(random)), autocast_(autocast) {}

  torch::Device device_;
  RandomState random_;
  AutocastState autocast_;

  friend class Replay;
};

// Goes back to a state; the destructor returns to the present.
class Replay {
 public:
  explicit Replay(const ReplayState& state) : present_(ReplayState::now(state.device_)) { restore(state); }
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;
  ~Replay() { restore(present_); }

 private:
  static void restore(const ReplayState& state) {
    state.random_.restore();
    state.autocast_.restore();
  }

  ReplayState present_;
  WithoutCastCache without_cast_cache_;
};

}  // namespace reelgrad
