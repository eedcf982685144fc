// What a network computes, as a list of torch's own operations, found by running it once.
#pragma once
#include <ATen/core/ivalue.h>
#include <torch/types.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace reelgrad {

// A place in Recording::values; -1: none.
using ValueId = int;

// An argument under its name in the operation's schema.
struct RecordedArgument {
  std::string name;
  std::vector<ValueId> tensors;  // one, or those of a list
  c10::IValue other;             // all else; None when there is nothing
};

struct RecordedOperation {
  std::string name;  // "conv2d"; what writes in place has the name of its twin that does not
  std::vector<RecordedArgument> arguments;
  std::vector<ValueId> outputs;
};

struct RecordedValue {
  std::vector<std::int64_t> shape;
  torch::ScalarType type = torch::kFloat32;
  bool follows_input = false;
  torch::Tensor constant;  // where it does not
  int operation = -1;      // that gave it; -1: it was there before, or it is from `unknown`
  std::string unknown;     // an operation that is not known gave it or wrote into its memory
};

struct Recording {
  std::vector<RecordedValue> values;  // in the order in which they are met
  std::vector<RecordedOperation> operations;
  ValueId input = 0, output = -1;
};

// Runs `network` on `input`. Operations that `is_known` are recorded as they are, others by what they call themselves.
// Memory of what follows from the input is let go as the network lets it go. Throws what `network` throws.
Recording record_network(const std::function<torch::Tensor(torch::Tensor)>& network, const torch::Tensor& input,
                         const std::function<bool(std::string_view)>& is_known);

}  // namespace reelgrad
