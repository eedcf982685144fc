// Naming tensors in a snapshot's training part: every piece of state has a prefix, "optimizer.exp_avg.body.0.weight".
#pragma once
#include <torch/types.h>

#include <string>

#include "reelgrad/nn/weights.h"

namespace reelgrad {

// Appends a copy on the CPU.
void put_state(NamedTensors& state, std::string name, const torch::Tensor& value);
void put_state(NamedTensors& state, const std::string& prefix, const NamedTensors& values);

class StateReader {
 public:
  explicit StateReader(const NamedTensors& state) : state_(state) {}

  const torch::Tensor* find(const std::string& name) const;  // nullptr: not there

  // Throws failed when the name is missing or has another shape.
  void copy_to(torch::Tensor into, const std::string& name) const;

  // The tensors below `prefix`, with the rest of their names.
  NamedTensors below(const std::string& prefix) const;

 private:
  const NamedTensors& state_;
};

}  // namespace reelgrad
