// Recordings of a network become the nodes of an ONNX graph. The network is recorded on pictures of several sizes: what
// differs between them follows from the picture's height and width, and is written as a function of them.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "reelgrad/nn/onnx_model.h"
#include "reelgrad/nn/recording.h"
#include "reelgrad/nn/weights.h"

namespace reelgrad {

struct InputSize {
  std::int64_t height = 0, width = 0;
  bool operator==(const InputSize&) const = default;
};

// base * factor + offset.
struct SizedNumber {
  enum class Base { one, height, width, area, per_height, per_width, per_area };
  Base base = Base::one;
  double factor = 0;
  double offset = 0;

  bool fixed() const { return base == Base::one; }
  double at(const InputSize& size) const;
  bool operator==(const SizedNumber&) const = default;
};

// The number that is `values[i]` at `sizes[i]`; nullopt when it is no such function of the size. `whole`: of whole
// numbers, whose values an ONNX graph reckons exactly.
std::optional<SizedNumber> fit(const std::vector<double>& values, const std::vector<InputSize>& sizes, bool whole);

struct OnnxTarget {
  int opset = onnx::kOldestOpset;
  std::optional<InputSize> size;  // nullopt: any
};

onnx::Type onnx_type(torch::ScalarType type);

// For the converters of operations: the operation at hand, its arguments, and what its nodes are made of. Names of
// values are those in the graph.
class OnnxGraph {
 public:
  // One recording for each of `sizes`, alike in what they do. `names` are of tensors that were there before.
  OnnxGraph(std::vector<Recording> recordings, std::vector<InputSize> sizes, const NamedTensors& names,
            OnnxTarget target);
  OnnxGraph(const OnnxGraph&) = delete;
  OnnxGraph& operator=(const OnnxGraph&) = delete;

  // The whole of it, with input "input" and output "output". `convert` is called for each operation that is needed.
  // Throws failed, naming the operation, for what ONNX does not have, and for sizes that no function was found for.
  onnx::Model convert(const std::function<void(OnnxGraph&)>& convert);

  // --- the operation at hand
  const RecordedOperation& operation() const { return recordings_[0].operations[current_]; }
  int opset() const { return target_.opset; }
  bool has(const std::string& argument) const;
  bool is_tensor(const std::string& argument) const;
  ValueId value(const std::string& argument) const;
  const std::vector<ValueId>& values(const std::string& argument) const;
  ValueId output(std::size_t index = 0) const { return operation().outputs.at(index); }

  SizedNumber number(const std::string& argument);                // an integer or a real number
  std::vector<SizedNumber> numbers(const std::string& argument);  // of integers; an integer alone is a list of one
  double real(const std::string& argument);                       // that is the same at every size
  std::int64_t integer(const std::string& argument);
  std::vector<std::int64_t> integers(const std::string& argument);
  bool flag(const std::string& argument) const;
  std::string text(const std::string& argument) const;

  std::vector<SizedNumber> shape(ValueId id);
  std::int64_t rank(ValueId id) const { return static_cast<std::int64_t>(first(id).shape.size()); }
  std::int64_t size(ValueId id, std::int64_t dim);  // that is the same at every size
  torch::ScalarType type(ValueId id) const { return first(id).type; }
  bool constant(ValueId id);

  // --- values in the graph
  std::string name(ValueId id);
  std::string name(ValueId id, torch::ScalarType type);  // brought to that type
  std::string tensor(const std::string& argument) { return name(value(argument)); }
  // A tensor or a number.
  std::string operand(const std::string& argument, torch::ScalarType type);
  // A constant tensor with another shape, as weights under their own name.
  std::string reshaped_constant(ValueId id, const std::vector<std::int64_t>& shape);
  std::string list(const std::vector<std::int64_t>& items);
  std::string list(const std::vector<SizedNumber>& items);
  std::string floats(const std::vector<float>& items);
  std::string scalar(double value, torch::ScalarType type);
  std::string scalar(const SizedNumber& value, torch::ScalarType type);

  // --- nodes
  std::string add(const std::string& op, std::vector<std::string> inputs, std::vector<onnx::Attribute> attributes = {});
  std::string cast(const std::string& value, torch::ScalarType type);
  std::string reshape(const std::string& value, const std::vector<SizedNumber>& from,
                      const std::vector<SizedNumber>& to);
  std::string slice(const std::string& value, std::int64_t dim, const SizedNumber& begin, const SizedNumber& end,
                    std::int64_t step = 1);
  std::string transpose(const std::string& value, const std::vector<std::int64_t>& order);
  // Along dims that stay, of size 1.
  std::string reduce(const std::string& op, const std::string& value, const std::vector<std::int64_t>& dims, bool keep);
  void give(const std::string& value, std::size_t index = 0);

  [[noreturn]] void refuse(const std::string& why) const;

 private:
  const RecordedValue& first(ValueId id) const { return recordings_[0].values[id]; }
  const RecordedArgument* find(const std::string& argument) const;
  const RecordedArgument& need(const std::string& argument) const;
  void check_alike() const;
  std::string instead() const;
  void mark_needed(ValueId id, std::vector<char>& needed);
  SizedNumber fitted(const std::vector<double>& values, bool whole) const;
  SizedNumber settled(const SizedNumber& number) const;  // a number alone where the size is given
  std::string size_of(const SizedNumber& number);        // [1], int64
  std::string state_name(const torch::Tensor& tensor) const;
  std::string add_constant(const std::string& wish, const torch::Tensor& tensor);
  std::string unique(const std::string& wish);
  void name_output(const std::string& value);

  std::vector<Recording> recordings_;
  std::vector<InputSize> sizes_;
  std::map<std::pair<const void*, std::int64_t>, std::string> state_names_;  // by memory and number of values
  OnnxTarget target_;
  onnx::Model model_;
  std::size_t current_ = 0;
  std::vector<std::string> names_;  // by ValueId
  std::vector<int> constant_;       // by ValueId: -1 is not known yet
  std::map<std::string, int> used_names_;
  std::map<std::string, std::string> shared_;  // small constants and sizes, by what they are
};

// The operations that are known, by the names that RecordedOperation has.
bool onnx_knows(std::string_view operation);
void convert_operation(OnnxGraph& graph);

}  // namespace reelgrad
