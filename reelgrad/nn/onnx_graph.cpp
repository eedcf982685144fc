#include "reelgrad/nn/onnx_graph.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "reelgrad/base/error.h"

namespace reelgrad {
namespace {

constexpr const char* kInput = "input";
constexpr const char* kOutput = "output";

struct OnnxTypeRow {
  torch::ScalarType torch;
  onnx::Type onnx;
};
constexpr std::array kOnnxTypes{
    OnnxTypeRow{torch::kFloat32, onnx::Type::float32}, OnnxTypeRow{torch::kFloat16, onnx::Type::float16},
    OnnxTypeRow{torch::kFloat64, onnx::Type::float64}, OnnxTypeRow{torch::kBFloat16, onnx::Type::bfloat16},
    OnnxTypeRow{torch::kInt64, onnx::Type::int64},     OnnxTypeRow{torch::kInt32, onnx::Type::int32},
    OnnxTypeRow{torch::kInt16, onnx::Type::int16},     OnnxTypeRow{torch::kInt8, onnx::Type::int8},
    OnnxTypeRow{torch::kUInt8, onnx::Type::uint8},     OnnxTypeRow{torch::kBool, onnx::Type::boolean},
};

double base_at(SizedNumber::Base base, const InputSize& size) {
  const double height = static_cast<double>(size.height), width = static_cast<double>(size.width);
  switch (base) {
    case SizedNumber::Base::one:
      return 1;
    case SizedNumber::Base::height:
      return height;
    case SizedNumber::Base::width:
      return width;
    case SizedNumber::Base::area:
      return height * width;
    case SizedNumber::Base::per_height:
      return 1 / height;
    case SizedNumber::Base::per_width:
      return 1 / width;
    case SizedNumber::Base::per_area:
      return 1 / (height * width);
  }
  return 0;
}

// The line through two of the values, when all lie on it.
std::optional<SizedNumber> fit_base(SizedNumber::Base base, const std::vector<double>& values,
                                    const std::vector<InputSize>& sizes) {
  const double first = base_at(base, sizes[0]), second = base_at(base, sizes[1]);
  if (first == second) return std::nullopt;
  SizedNumber number{.base = base, .factor = (values[1] - values[0]) / (second - first)};
  number.offset = values[0] - number.factor * first;
  if (std::abs(number.offset) < 1e-9 * std::abs(values[0])) number.offset = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::abs(number.at(sizes[i]) - values[i]) > 1e-9 * std::max(1.0, std::abs(values[i]))) return std::nullopt;
  }
  return number;
}

// Small, so that it is a ratio that a network has.
std::optional<std::pair<std::int64_t, std::int64_t>> as_ratio(double value) {
  constexpr std::int64_t kLargestDivisor = 4096;
  for (std::int64_t divisor = 1; divisor <= kLargestDivisor; ++divisor) {
    const double product = value * static_cast<double>(divisor);
    if (std::abs(product - std::round(product)) < 1e-7) return {{std::llround(product), divisor}};
  }
  return std::nullopt;
}

bool is_whole(double value) {
  return std::abs(value - std::round(value)) < 1e-6;
}

// Numbers that stand for "to the end" are beyond what a double counts.
std::int64_t as_whole(double value) {
  constexpr double kLimit = 9.2e18;
  if (value > kLimit) return std::numeric_limits<std::int64_t>::max();
  if (value < -kLimit) return std::numeric_limits<std::int64_t>::min();
  return std::llround(value);
}

bool equal_constants(const torch::Tensor& a, const torch::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && torch::equal(a, b);
}

std::int64_t as_integer(const c10::IValue& value) {
  return value.isBool() ? static_cast<std::int64_t>(value.toBool()) : value.toInt();
}

double as_real(const c10::IValue& value) {
  if (value.isDouble()) return value.toDouble();
  return static_cast<double>(as_integer(value));
}

std::vector<std::int64_t> as_integers(const c10::IValue& value) {
  if (value.isInt()) return {value.toInt()};
  return value.toIntVector();
}

}  // namespace

double SizedNumber::at(const InputSize& size) const {
  return base_at(base, size) * factor + offset;
}

std::optional<SizedNumber> fit(const std::vector<double>& values, const std::vector<InputSize>& sizes, bool whole) {
  if (std::ranges::all_of(values, [&](double value) { return value == values[0]; })) {
    return SizedNumber{.factor = values[0]};
  }
  using Base = SizedNumber::Base;
  for (const Base base : {Base::height, Base::width, Base::area}) {
    const auto number = fit_base(base, values, sizes);
    if (!number) continue;
    if (!whole || (as_ratio(number->factor) && is_whole(number->offset))) return number;
  }
  if (whole) return std::nullopt;
  for (const Base base : {Base::per_height, Base::per_width, Base::per_area}) {
    if (const auto number = fit_base(base, values, sizes)) return number;
  }
  return std::nullopt;
}

onnx::Type onnx_type(torch::ScalarType type) {
  const auto* row = std::ranges::find(kOnnxTypes, type, &OnnxTypeRow::torch);
  if (row == kOnnxTypes.end()) fail(fmt::format("ONNX export: the type {} is not supported", torch::toString(type)));
  return row->onnx;
}

OnnxGraph::OnnxGraph(std::vector<Recording> recordings, std::vector<InputSize> sizes, const NamedTensors& names,
                     OnnxTarget target)
    : recordings_(std::move(recordings)), sizes_(std::move(sizes)), target_(std::move(target)) {
  for (const auto& [name, tensor] : names) state_names_[{tensor.const_data_ptr(), tensor.numel()}] = name;
  names_.resize(recordings_[0].values.size());
  constant_.resize(recordings_[0].values.size(), -1);
}

// --- the operation at hand

// What may do where a file for any size does not.
std::string OnnxGraph::instead() const {
  return target_.size ? "" : ". A file for one size may do: --size WIDTHxHEIGHT";
}

void OnnxGraph::refuse(const std::string& why) const {
  fail(fmt::format("ONNX export: {}: {}", operation().name, why));
}

const RecordedArgument* OnnxGraph::find(const std::string& argument) const {
  const auto& arguments = operation().arguments;
  const auto found = std::ranges::find(arguments, argument, &RecordedArgument::name);
  return found == arguments.end() ? nullptr : &*found;
}

const RecordedArgument& OnnxGraph::need(const std::string& argument) const {
  const RecordedArgument* found = find(argument);
  if (found == nullptr) refuse(fmt::format("this form of it, without \"{}\", is not supported", argument));
  return *found;
}

bool OnnxGraph::has(const std::string& argument) const {
  const RecordedArgument* found = find(argument);
  return found != nullptr && (!found->tensors.empty() || !found->other.isNone());
}

bool OnnxGraph::is_tensor(const std::string& argument) const {
  return !need(argument).tensors.empty();
}

ValueId OnnxGraph::value(const std::string& argument) const {
  const RecordedArgument& found = need(argument);
  if (found.tensors.size() != 1) refuse(fmt::format("\"{}\" is no tensor", argument));
  return found.tensors.front();
}

const std::vector<ValueId>& OnnxGraph::values(const std::string& argument) const {
  return need(argument).tensors;
}

SizedNumber OnnxGraph::fitted(const std::vector<double>& values, bool whole) const {
  if (const auto number = fit(values, sizes_, whole)) return settled(*number);
  std::vector<std::string> examples;
  for (std::size_t i = 0; i < values.size(); ++i) {
    examples.push_back(fmt::format("{} at {}x{}", values[i], sizes_[i].width, sizes_[i].height));
  }
  refuse(fmt::format("its numbers follow from the picture's size in a way that a file for any size cannot have ({}){}",
                     fmt::join(examples, ", "), instead()));
}

SizedNumber OnnxGraph::settled(const SizedNumber& number) const {
  if (!target_.size || number.fixed()) return number;
  return {.factor = number.at(*target_.size)};
}

SizedNumber OnnxGraph::number(const std::string& argument) {
  const c10::IValue& example = need(argument).other;
  std::vector<double> values;
  const std::size_t place = static_cast<std::size_t>(&need(argument) - operation().arguments.data());
  for (const Recording& recording : recordings_) {
    const c10::IValue& value = recording.operations[current_].arguments[place].other;
    if (!value.isInt() && !value.isDouble() && !value.isBool()) refuse(fmt::format("\"{}\" is no number", argument));
    values.push_back(as_real(value));
  }
  return fitted(values, example.isInt());
}

std::vector<SizedNumber> OnnxGraph::numbers(const std::string& argument) {
  const std::size_t place = static_cast<std::size_t>(&need(argument) - operation().arguments.data());
  std::vector<std::vector<std::int64_t>> lists;
  for (const Recording& recording : recordings_) {
    const c10::IValue& value = recording.operations[current_].arguments[place].other;
    if (!value.isInt() && !value.isIntList()) refuse(fmt::format("\"{}\" is no list of integers", argument));
    lists.push_back(as_integers(value));
  }
  std::vector<SizedNumber> numbers;
  for (std::size_t i = 0; i < lists[0].size(); ++i) {
    std::vector<double> values;
    for (const auto& list : lists) values.push_back(static_cast<double>(list.at(i)));
    numbers.push_back(fitted(values, true));
  }
  return numbers;
}

double OnnxGraph::real(const std::string& argument) {
  const SizedNumber found = number(argument);
  if (!found.fixed()) refuse(fmt::format("\"{}\" follows from the picture's size{}", argument, instead()));
  return found.factor;
}

std::int64_t OnnxGraph::integer(const std::string& argument) {
  return as_whole(real(argument));
}

std::vector<std::int64_t> OnnxGraph::integers(const std::string& argument) {
  std::vector<std::int64_t> list;
  for (const SizedNumber& found : numbers(argument)) {
    if (!found.fixed()) refuse(fmt::format("\"{}\" follows from the picture's size{}", argument, instead()));
    list.push_back(as_whole(found.factor));
  }
  return list;
}

bool OnnxGraph::flag(const std::string& argument) const {
  return has(argument) && need(argument).other.toBool();
}

std::string OnnxGraph::text(const std::string& argument) const {
  const c10::IValue& found = need(argument).other;
  return found.isString() ? found.toStringRef() : std::string();
}

std::vector<SizedNumber> OnnxGraph::shape(ValueId id) {
  std::vector<SizedNumber> shape;
  for (std::size_t i = 0; i < first(id).shape.size(); ++i) {
    std::vector<double> values;
    for (const Recording& recording : recordings_) {
      values.push_back(static_cast<double>(recording.values[id].shape.at(i)));
    }
    shape.push_back(fitted(values, true));
  }
  return shape;
}

std::int64_t OnnxGraph::size(ValueId id, std::int64_t dim) {
  const SizedNumber found = shape(id).at(dim < 0 ? dim + rank(id) : dim);
  if (!found.fixed()) refuse(fmt::format("a size that it must know follows from the picture's{}", instead()));
  return as_whole(found.factor);
}

// What does not follow from the input and is the same at every size.
bool OnnxGraph::constant(ValueId id) {
  if (constant_[id] >= 0) return constant_[id] == 1;
  const RecordedValue& value = first(id);
  const bool is = !value.follows_input && std::ranges::all_of(recordings_, [&](const Recording& recording) {
    return equal_constants(recording.values[id].constant, value.constant);
  });
  constant_[id] = is ? 1 : 0;
  return is;
}

// --- values in the graph

std::string OnnxGraph::unique(const std::string& wish) {
  const int used = used_names_[wish]++;
  return used == 0 ? wish : unique(fmt::format("{}_{}", wish, used));
}

// Of a weight in its own shape or another.
std::string OnnxGraph::state_name(const torch::Tensor& tensor) const {
  const auto known = state_names_.find({tensor.const_data_ptr(), tensor.numel()});
  return known == state_names_.end() ? "constant" : known->second;
}

std::string OnnxGraph::add_constant(const std::string& wish, const torch::Tensor& tensor) {
  const auto kept = std::make_shared<torch::Tensor>(tensor.detach().to(torch::kCPU).contiguous());
  const std::string name = unique(wish);
  model_.initializers.push_back({.name = name,
                                 .type = onnx_type(kept->scalar_type()),
                                 .dims = kept->sizes().vec(),
                                 .bytes = {static_cast<const std::byte*>(kept->const_data_ptr()), kept->nbytes()},
                                 .owner = kept});
  return name;
}

std::string OnnxGraph::name(ValueId id) {
  if (!names_[id].empty()) return names_[id];
  const RecordedValue& value = first(id);
  if (!constant(id)) {
    fail(fmt::format("ONNX export: the operation {} is not supported{}",
                     value.unknown.empty() ? "that gives a constant of each size" : value.unknown,
                     value.follows_input ? "" : instead()));
  }
  return names_[id] = add_constant(state_name(value.constant), value.constant);
}

std::string OnnxGraph::name(ValueId id, torch::ScalarType type) {
  if (first(id).type == type) return name(id);
  if (constant(id)) return add_constant("constant", first(id).constant.to(type));
  return cast(name(id), type);
}

std::string OnnxGraph::operand(const std::string& argument, torch::ScalarType type) {
  if (is_tensor(argument)) return name(value(argument), type);
  return scalar(number(argument), type);
}

std::string OnnxGraph::reshaped_constant(ValueId id, const std::vector<std::int64_t>& shape) {
  const torch::Tensor& tensor = first(id).constant;
  return add_constant(state_name(tensor), tensor.reshape(shape));
}

std::string OnnxGraph::list(const std::vector<std::int64_t>& items) {
  const std::string key = fmt::format("list {}", items);
  const auto found = shared_.find(key);
  if (found != shared_.end()) return found->second;
  return shared_[key] = add_constant("sizes", torch::tensor(items, torch::kInt64));
}

std::string OnnxGraph::list(const std::vector<SizedNumber>& items) {
  if (std::ranges::all_of(items, &SizedNumber::fixed)) {
    std::vector<std::int64_t> fixed;
    for (const SizedNumber& item : items) fixed.push_back(as_whole(item.factor));
    return list(fixed);
  }
  std::vector<std::string> parts;
  for (const SizedNumber& item : items) parts.push_back(size_of(item));
  return parts.size() == 1 ? parts[0] : add("Concat", parts, {{"axis", std::int64_t{0}}});
}

std::string OnnxGraph::size_of(const SizedNumber& number) {
  if (number.fixed()) return list(std::vector{as_whole(number.factor)});
  const std::string key = fmt::format("size {} {} {}", static_cast<int>(number.base), number.factor, number.offset);
  const auto found = shared_.find(key);
  if (found != shared_.end()) return found->second;

  const auto side = [&](std::int64_t dim) {
    std::string& name = shared_[fmt::format("side {}", dim)];
    if (name.empty()) name = add("Shape", {kInput}, {{"start", dim}, {"end", dim + 1}});
    return name;
  };
  std::string value = number.base == SizedNumber::Base::height  ? side(2)
                      : number.base == SizedNumber::Base::width ? side(3)
                                                                : add("Mul", {side(2), side(3)});
  const auto [factor, divisor] = as_ratio(number.factor).value();
  if (factor != 1) value = add("Mul", {value, list(std::vector{factor})});
  if (divisor != 1) value = add("Div", {value, list(std::vector{divisor})});
  const std::int64_t offset = as_whole(number.offset);
  if (offset != 0) value = add("Add", {value, list(std::vector{offset})});
  return shared_[key] = value;
}

std::string OnnxGraph::floats(const std::vector<float>& items) {
  const std::string key = fmt::format("floats {}", items);
  const auto found = shared_.find(key);
  if (found != shared_.end()) return found->second;
  return shared_[key] = add_constant("factors", torch::tensor(items));
}

std::string OnnxGraph::scalar(double value, torch::ScalarType type) {
  const std::string key = fmt::format("scalar {} {}", value, torch::toString(type));
  const auto found = shared_.find(key);
  if (found != shared_.end()) return found->second;
  return shared_[key] = add_constant("number", torch::scalar_tensor(value, type));
}

std::string OnnxGraph::scalar(const SizedNumber& value, torch::ScalarType type) {
  if (value.fixed()) return scalar(value.factor, type);
  using Base = SizedNumber::Base;
  const bool whole = as_ratio(value.factor) && is_whole(value.offset);
  const std::string empty_shape = list(std::vector<std::int64_t>{});
  if (whole && value.base <= Base::area) return cast(add("Reshape", {size_of(value), empty_shape}), type);
  const bool divides = value.base >= Base::per_height;
  const auto base = divides ? static_cast<Base>(static_cast<int>(value.base) - 3) : value.base;
  const std::string size = cast(add("Reshape", {size_of({.base = base, .factor = 1}), empty_shape}), torch::kFloat32);
  const std::string factor = scalar(value.factor, torch::kFloat32);
  std::string result = divides ? add("Div", {factor, size}) : add("Mul", {size, factor});
  if (value.offset != 0) result = add("Add", {result, scalar(value.offset, torch::kFloat32)});
  return type == torch::kFloat32 ? result : cast(result, type);
}

// --- nodes

std::string OnnxGraph::add(const std::string& op, std::vector<std::string> inputs,
                           std::vector<onnx::Attribute> attributes) {
  while (!inputs.empty() && inputs.back().empty()) inputs.pop_back();
  const std::string name = unique(op);
  model_.nodes.push_back(
      {.op = op, .inputs = std::move(inputs), .outputs = {name}, .attributes = std::move(attributes)});
  return name;
}

std::string OnnxGraph::cast(const std::string& value, torch::ScalarType type) {
  return add("Cast", {value}, {{"to", static_cast<std::int64_t>(onnx_type(type))}});
}

// A size that stays in its place is copied, one that is left is what remains.
std::string OnnxGraph::reshape(const std::string& value, const std::vector<SizedNumber>& from,
                               const std::vector<SizedNumber>& to) {
  if (from == to) return value;
  std::vector<SizedNumber> shape = to;
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (to[i].fixed()) continue;
    if (i < from.size() && from[i] == to[i]) {
      shape[i] = {.factor = 0};
    } else {
      open.push_back(i);
    }
  }
  if (!open.empty()) shape[open.back()] = {.factor = -1};
  return add("Reshape", {value, list(shape)});
}

std::string OnnxGraph::slice(const std::string& value, std::int64_t dim, const SizedNumber& begin,
                             const SizedNumber& end, std::int64_t step) {
  return add("Slice", {value, list(std::vector{begin}), list(std::vector{end}), list(std::vector{dim}),
                       list(std::vector{step})});
}

std::string OnnxGraph::transpose(const std::string& value, const std::vector<std::int64_t>& order) {
  return add("Transpose", {value}, {{"perm", order}});
}

std::string OnnxGraph::reduce(const std::string& op, const std::string& value, const std::vector<std::int64_t>& dims,
                              bool keep) {
  // The axes of most became an input with opset 18, those of the sum before.
  constexpr int kAxesAreInput = 18;
  const onnx::Attribute keepdims{"keepdims", std::int64_t{keep}};
  if (op == "ReduceSum" || opset() >= kAxesAreInput) return add(op, {value, list(dims)}, {keepdims});
  return add(op, {value}, {{"axes", dims}, keepdims});
}

void OnnxGraph::give(const std::string& value, std::size_t index) {
  names_[output(index)] = value;
}

// --- the whole

void OnnxGraph::check_alike() const {
  const auto& expected = recordings_[0];
  for (const Recording& recording : recordings_) {
    const std::size_t count = std::min(expected.operations.size(), recording.operations.size());
    for (std::size_t i = 0; i < count; ++i) {
      const auto &one = expected.operations[i], &other = recording.operations[i];
      const bool alike = one.name == other.name && one.outputs == other.outputs &&
                         std::ranges::equal(one.arguments, other.arguments, {}, &RecordedArgument::tensors,
                                            &RecordedArgument::tensors);
      if (!alike) {
        fail(fmt::format("ONNX export: the network does other things for other picture sizes, from {} on{}", one.name,
                         instead()));
      }
    }
    if (expected.operations.size() != recording.operations.size() ||
        expected.values.size() != recording.values.size() || expected.output != recording.output) {
      fail(fmt::format("ONNX export: the network does more for some picture sizes than for others{}", instead()));
    }
  }
}

void OnnxGraph::mark_needed(ValueId id, std::vector<char>& needed) {
  std::vector<ValueId> open{id};
  while (!open.empty()) {
    const ValueId next = open.back();
    open.pop_back();
    const int operation = first(next).operation;
    if (constant(next) || operation < 0 || needed[operation]) continue;
    needed[operation] = 1;
    for (const RecordedArgument& argument : recordings_[0].operations[operation].arguments) {
      open.insert(open.end(), argument.tensors.begin(), argument.tensors.end());
    }
  }
}

void OnnxGraph::name_output(const std::string& value) {
  const auto producer =
      std::ranges::find_if(model_.nodes, [&](const onnx::Node& node) { return node.outputs.front() == value; });
  if (producer == model_.nodes.end()) {
    model_.nodes.push_back({.op = "Identity", .inputs = {value}, .outputs = {kOutput}});
    return;
  }
  producer->outputs.front() = kOutput;
  for (onnx::Node& node : model_.nodes) std::ranges::replace(node.inputs, value, std::string(kOutput));
}

onnx::Model OnnxGraph::convert(const std::function<void(OnnxGraph&)>& convert) {
  check_alike();
  const Recording& recording = recordings_[0];
  used_names_ = {{kInput, 1}, {kOutput, 1}};
  names_[recording.input] = kInput;
  std::vector<char> needed(recording.operations.size());
  mark_needed(recording.output, needed);
  for (current_ = 0; current_ < recording.operations.size(); ++current_) {
    if (needed[current_]) convert(*this);
  }
  if (recording.operations.empty()) fail("ONNX export: the network does nothing to its input");
  current_ = recording.operations.size() - 1;
  name_output(name(recording.output));

  const auto port = [&](const char* name, ValueId id, bool is_input) {
    onnx::Port port{.name = name, .type = onnx_type(first(id).type)};
    const std::vector<SizedNumber> sizes = shape(id);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i].fixed()) {
        port.dims.emplace_back(static_cast<std::int64_t>(as_whole(sizes[i].factor)));
      } else {
        const std::string side = i + 1 == sizes.size() ? "width" : "height";
        port.dims.emplace_back(is_input ? side : "output_" + side);
      }
    }
    return port;
  };
  model_.inputs.push_back(port(kInput, recording.input, true));
  model_.outputs.push_back(port(kOutput, recording.output, false));
  model_.opset = target_.opset;
  return std::move(model_);
}

}  // namespace reelgrad
