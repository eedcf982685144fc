#pragma once
#include <torch/types.h>

namespace reelgrad {

// While it lives, the card's context that the CUDA runtime and torch use is the calling thread's current one; at its end
// it is the one that was: a host's thread may have another library's. Nothing on the CPU.
class CardContext {
 public:
  explicit CardContext(torch::Device device);
  CardContext(const CardContext&) = delete;
  CardContext& operator=(const CardContext&) = delete;
  ~CardContext();

 private:
  void* before_ = nullptr;  // CUcontext; null: there was none, or there is no card
};

}  // namespace reelgrad
