#pragma once
#include <c10/core/Event.h>
#include <torch/types.h>

#include <optional>

namespace reelgrad {

// A tensor's values on their way to the host, as they are when the current stream gets here. ready() never waits.
class ReadBack {
 public:
  explicit ReadBack(const torch::Tensor& source);

  bool ready() const;
  torch::Tensor wait() const;  // on the CPU

 private:
  torch::Tensor host_;
  std::optional<c10::Event> copied_;  // not set: on the CPU from the start
};

}  // namespace reelgrad
