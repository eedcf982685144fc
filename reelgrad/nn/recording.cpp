#include "reelgrad/nn/recording.h"

#include <ATen/record_function.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>

#include "reelgrad/base/error.h"

namespace reelgrad {
namespace {

using WeakTensorImpl = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

// These take a tensor for its shape and type, not for what is in it.
constexpr std::array<std::string_view, 11> kOnlyShape{"zeros_like", "ones_like",  "full_like",        "empty_like",
                                                      "new_zeros",  "new_ones",   "new_full",         "new_empty",
                                                      "rand_like",  "randn_like", "new_empty_strided"};

// The operation that began; what is needed of it when it ends.
struct BegunOperation : at::ObserverContext {
  bool recorded = false;  // else it is inside one that is, or is not known
  bool visible = false;   // not inside one that is recorded
  bool follows_input = false;
  RecordedOperation operation;
  std::vector<torch::Tensor> written;  // arguments that it writes into
};

std::string plain_name(std::string_view name) {
  constexpr std::string_view kNamespace = "aten::";
  if (name.starts_with(kNamespace)) name.remove_prefix(kNamespace.size());
  return std::string(name);
}

const void* memory_of(const torch::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

// An operation that TorchScript's interpreter calls has all that lies on its stack for inputs and for outputs: its own
// are the uppermost.
std::span<const c10::IValue> uppermost(std::span<const c10::IValue> stack, std::size_t count) {
  return stack.size() > count ? stack.last(count) : stack;
}

class NetworkRecorder {
 public:
  NetworkRecorder(const torch::Tensor& input, const std::function<bool(std::string_view)>& is_known)
      : is_known_(is_known) {
    recording_.input = add_value(input, /*follows_input=*/true);
  }

  Recording take(const torch::Tensor& output) {
    recording_.output = value_of(output);
    return std::move(recording_);
  }

  std::unique_ptr<BegunOperation> begin(const at::RecordFunction& function) {
    auto begun = std::make_unique<BegunOperation>();
    begun->visible = recorded_depth_ == 0;
    if (!begun->visible) return begun;
    const auto schema = function.operator_schema();
    if (!schema) return begun;
    std::string& name = begun->operation.name = plain_name(schema->name());
    const auto& arguments = schema->arguments();
    const auto inputs = uppermost(function.inputs(), arguments.size());
    const std::size_t count = std::min(inputs.size(), arguments.size());
    const bool only_shape = std::ranges::find(kOnlyShape, name) != kOnlyShape.end();
    for (std::size_t i = 0; i < count; ++i) {
      if (!only_shape) begun->follows_input |= follows_input(inputs[i]);
      const auto* alias = arguments[i].alias_info();
      if (alias != nullptr && alias->isWrite() && inputs[i].isTensor()) begun->written.push_back(inputs[i].toTensor());
    }
    if (!begun->written.empty() && name.ends_with('_')) name.pop_back();
    begun->recorded = is_known_(name) && (begun->written.empty() || writes_itself(*begun, inputs));
    if (!begun->recorded) return begun;
    ++recorded_depth_;
    for (std::size_t i = 0; i < count; ++i) add_argument(begun->operation, arguments[i].name(), inputs[i]);
    return begun;
  }

  void end(const at::RecordFunction& function, BegunOperation& begun) {
    if (begun.recorded) --recorded_depth_;
    if (!begun.visible) return;
    for (const torch::Tensor& tensor : begun.written) overwrite(tensor, begun);
    std::vector<torch::Tensor> outputs;
    const auto schema = function.operator_schema();
    const std::vector<c10::IValue> given = function.outputs();
    for (const c10::IValue& output : uppermost(given, schema ? schema->returns().size() : given.size())) {
      append_tensors(output, outputs);
    }
    const bool gave_its_input = begun.written.empty() && std::ranges::all_of(outputs, [&](const torch::Tensor& t) {
                                  return find(t).has_value();
                                });
    if (gave_its_input && begun.recorded) return;
    if (begun.recorded) {
      record(begun, outputs);
    } else {
      blame(begun, outputs);
    }
  }

 private:
  // As long as `held` is there, no other tensor can have the address.
  struct Sharer {
    const c10::TensorImpl* impl;
    WeakTensorImpl held;
  };

  static bool writes_itself(const BegunOperation& begun, std::span<const c10::IValue> inputs) {
    return begun.written.size() == 1 && inputs[0].isTensor() && inputs[0].toTensor().is_same(begun.written[0]);
  }

  static void append_tensors(const c10::IValue& value, std::vector<torch::Tensor>& tensors) {
    if (value.isTensor() && value.toTensor().defined()) tensors.push_back(value.toTensor());
    if (value.isTensorList()) {
      for (const torch::Tensor& tensor : value.toTensorVector()) tensors.push_back(tensor);
    }
  }

  bool follows_input(const c10::IValue& value) const {
    std::vector<torch::Tensor> tensors;
    append_tensors(value, tensors);
    return std::ranges::any_of(tensors, [&](const torch::Tensor& tensor) {
      const auto found = find(tensor);
      return found && recording_.values[*found].follows_input;
    });
  }

  std::optional<ValueId> find(const torch::Tensor& tensor) const {
    const auto found = ids_.find(tensor.unsafeGetTensorImpl());
    if (found == ids_.end()) return std::nullopt;
    return found->second;
  }

  ValueId value_of(const torch::Tensor& tensor) {
    const auto found = find(tensor);
    return found ? *found : add_value(tensor, /*follows_input=*/false);
  }

  ValueId add_value(const torch::Tensor& tensor, bool follows_input) {
    const ValueId id = static_cast<ValueId>(recording_.values.size());
    recording_.values.push_back({.shape = tensor.sizes().vec(),
                                 .type = tensor.scalar_type(),
                                 .follows_input = follows_input,
                                 .constant = follows_input ? torch::Tensor() : tensor});
    const bool is_new = ids_.insert_or_assign(tensor.unsafeGetTensorImpl(), id).second;
    if (is_new) {
      const auto impl = tensor.getIntrusivePtr();
      sharing_[memory_of(tensor)].push_back({impl.get(), WeakTensorImpl(impl)});
    }
    return id;
  }

  void add_argument(RecordedOperation& operation, const std::string& name, const c10::IValue& value) {
    RecordedArgument argument{.name = name};
    std::vector<torch::Tensor> tensors;
    append_tensors(value, tensors);
    for (const torch::Tensor& tensor : tensors) argument.tensors.push_back(value_of(tensor));
    const bool undefined = value.isTensor() && tensors.empty();
    if (tensors.empty() && !undefined) argument.other = value;
    operation.arguments.push_back(std::move(argument));
  }

  // Whatever lies in that memory is no longer what was recorded: from here on it is another value.
  void overwrite(const torch::Tensor& tensor, const BegunOperation& begun) {
    const std::string by = begun.operation.name + "_";
    for (const auto& [impl, held] : sharing_[memory_of(tensor)]) {
      if (held.expired()) continue;  // its memory was given to another
      RecordedValue value = recording_.values[ids_[impl]];
      value.operation = -1;
      value.unknown = by;
      ids_[impl] = static_cast<ValueId>(recording_.values.size());
      recording_.values.push_back(std::move(value));
    }
    if (begun.recorded || !begun.follows_input) return;
    recording_.values[add_value(tensor, /*follows_input=*/true)].unknown = by;
  }

  void record(BegunOperation& begun, const std::vector<torch::Tensor>& outputs) {
    const int index = static_cast<int>(recording_.operations.size());
    for (const torch::Tensor& output : outputs) {
      const ValueId id = add_value(output, begun.follows_input);
      recording_.values[id].operation = index;
      begun.operation.outputs.push_back(id);
    }
    recording_.operations.push_back(std::move(begun.operation));
  }

  // What none of its own calls gave is its own. Of several calls the outermost is the one that people know.
  void blame(const BegunOperation& begun, const std::vector<torch::Tensor>& outputs) {
    for (const torch::Tensor& output : outputs) {
      const auto found = find(output);
      if (!found) {
        recording_.values[add_value(output, begun.follows_input)].unknown = begun.operation.name;
      } else if (begun.written.empty() && !recording_.values[*found].unknown.empty()) {
        recording_.values[*found].unknown = begun.operation.name;
      }
    }
  }

  const std::function<bool(std::string_view)>& is_known_;
  Recording recording_;
  int recorded_depth_ = 0;
  std::unordered_map<const c10::TensorImpl*, ValueId> ids_;
  std::unordered_map<const void*, std::vector<Sharer>> sharing_;  // by memory
};

thread_local NetworkRecorder* recorder = nullptr;

// Stops recording, however the network ends.
class RecorderInPlace {
 public:
  explicit RecorderInPlace(NetworkRecorder& used) {
    recorder = &used;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(begin, end)
                                             .needsInputs(true)
                                             .needsOutputs(true)
                                             .scopes({at::RecordScope::FUNCTION}));
  }
  RecorderInPlace(const RecorderInPlace&) = delete;
  RecorderInPlace& operator=(const RecorderInPlace&) = delete;
  ~RecorderInPlace() {
    at::removeCallback(handle_);
    recorder = nullptr;
  }

 private:
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
    return recorder->begin(function);
  }
  static void end(const at::RecordFunction& function, at::ObserverContext* context) {
    recorder->end(function, static_cast<BegunOperation&>(*context));
  }

  at::CallbackHandle handle_ = 0;
};

}  // namespace

Recording record_network(const std::function<torch::Tensor(torch::Tensor)>& network, const torch::Tensor& input,
                         const std::function<bool(std::string_view)>& is_known) {
  NetworkRecorder used(input, is_known);
  torch::Tensor output;
  {
    const RecorderInPlace in_place(used);
    output = network(input);
  }
  return used.take(output);
}

}  // namespace reelgrad
