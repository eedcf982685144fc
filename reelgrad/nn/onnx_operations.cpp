// torch's operations in those of ONNX: https://onnx.ai/onnx/operators/. Where later versions of the standard have an
// operation for what several do (Gelu, Mish), the several are written: they are in all of 17 to 20.
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "reelgrad/nn/onnx_graph.h"

namespace reelgrad {
namespace onnx_operations {
namespace {

using Ints = std::vector<std::int64_t>;
using Convert = void (*)(OnnxGraph&);

constexpr double kToEnd = 9.3e18;  // beyond every size

SizedNumber fixed_number(double value) {
  return {.factor = value};
}

std::int64_t wrapped(std::int64_t dim, std::int64_t rank) {
  return dim < 0 ? dim + rank : dim;
}

torch::ScalarType output_type(const OnnxGraph& graph) {
  return graph.type(graph.output());
}

// The argument "self" or "input" in the type of what comes out.
std::string self_in_output_type(OnnxGraph& graph) {
  return graph.name(graph.value("self"), output_type(graph));
}

// --- element by element

struct UnaryRow {
  std::string_view name;
  const char* onnx;
};
constexpr std::array kUnary{
    UnaryRow{"relu", "Relu"},
    UnaryRow{"sigmoid", "Sigmoid"},
    UnaryRow{"tanh", "Tanh"},
    UnaryRow{"exp", "Exp"},
    UnaryRow{"log", "Log"},
    UnaryRow{"sqrt", "Sqrt"},
    UnaryRow{"neg", "Neg"},
    UnaryRow{"reciprocal", "Reciprocal"},
    UnaryRow{"abs", "Abs"},
    UnaryRow{"erf", "Erf"},
    UnaryRow{"sin", "Sin"},
    UnaryRow{"cos", "Cos"},
    UnaryRow{"floor", "Floor"},
    UnaryRow{"ceil", "Ceil"},
    UnaryRow{"round", "Round"},
    UnaryRow{"sign", "Sign"},
    UnaryRow{"hardswish", "HardSwish"},
};

constexpr std::array kBinary{
    UnaryRow{"mul", "Mul"},
    UnaryRow{"maximum", "Max"},
    UnaryRow{"minimum", "Min"},
    UnaryRow{"pow", "Pow"},
};

void convert_unary(OnnxGraph& graph, const char* onnx) {
  graph.give(graph.add(onnx, {self_in_output_type(graph)}));
}

void convert_binary(OnnxGraph& graph, const char* onnx) {
  const torch::ScalarType type = output_type(graph);
  const bool power = graph.operation().name == "pow";
  graph.give(graph.add(onnx, {graph.operand("self", type), graph.operand(power ? "exponent" : "other", type)}));
}

std::string times_alpha(OnnxGraph& graph, const std::string& value, torch::ScalarType type) {
  if (!graph.has("alpha") || graph.real("alpha") == 1) return value;
  return graph.add("Mul", {value, graph.scalar(graph.real("alpha"), type)});
}

void convert_sum(OnnxGraph& graph, const char* onnx) {
  const torch::ScalarType type = output_type(graph);
  const std::string other = times_alpha(graph, graph.operand("other", type), type);
  graph.give(graph.add(onnx, {graph.operand("self", type), other}));
}
void convert_add(OnnxGraph& graph) {
  convert_sum(graph, "Add");
}
void convert_sub(OnnxGraph& graph) {
  convert_sum(graph, "Sub");
}

void convert_rsub(OnnxGraph& graph) {
  const torch::ScalarType type = output_type(graph);
  const std::string self = times_alpha(graph, graph.operand("self", type), type);
  graph.give(graph.add("Sub", {graph.operand("other", type), self}));
}

void convert_div(OnnxGraph& graph) {
  if (graph.has("rounding_mode")) graph.refuse("rounding is not supported");
  const torch::ScalarType type = output_type(graph);
  graph.give(graph.add("Div", {graph.operand("self", type), graph.operand("other", type)}));
}

// self + value * tensor1 (times or by) tensor2.
void convert_with_product(OnnxGraph& graph, const char* onnx) {
  const torch::ScalarType type = output_type(graph);
  std::string product = graph.add(onnx, {graph.operand("tensor1", type), graph.operand("tensor2", type)});
  if (graph.real("value") != 1) product = graph.add("Mul", {product, graph.scalar(graph.real("value"), type)});
  graph.give(graph.add("Add", {graph.operand("self", type), product}));
}
void convert_addcmul(OnnxGraph& graph) {
  convert_with_product(graph, "Mul");
}
void convert_addcdiv(OnnxGraph& graph) {
  convert_with_product(graph, "Div");
}

void convert_lerp(OnnxGraph& graph) {
  const torch::ScalarType type = output_type(graph);
  const std::string self = graph.tensor("self"), way = graph.add("Sub", {graph.tensor("end"), self});
  graph.give(graph.add("Add", {self, graph.add("Mul", {way, graph.operand("weight", type)})}));
}

// In the type of what is compared; what comes out is bools.
void compare(OnnxGraph& graph, const char* onnx) {
  const torch::ScalarType type = graph.type(graph.value("self"));
  graph.give(graph.add(onnx, {graph.tensor("self"), graph.operand("other", type)}));
}
void convert_gt(OnnxGraph& graph) {
  compare(graph, "Greater");
}
void convert_ge(OnnxGraph& graph) {
  compare(graph, "GreaterOrEqual");
}
void convert_lt(OnnxGraph& graph) {
  compare(graph, "Less");
}
void convert_le(OnnxGraph& graph) {
  compare(graph, "LessOrEqual");
}

void convert_where(OnnxGraph& graph) {
  const torch::ScalarType type = output_type(graph);
  graph.give(
      graph.add("Where", {graph.tensor("condition"), graph.operand("self", type), graph.operand("other", type)}));
}

void convert_masked_fill(OnnxGraph& graph) {
  const torch::ScalarType type = output_type(graph);
  graph.give(graph.add("Where", {graph.tensor("mask"), graph.operand("value", type), self_in_output_type(graph)}));
}

void convert_rsqrt(OnnxGraph& graph) {
  graph.give(graph.add("Reciprocal", {graph.add("Sqrt", {self_in_output_type(graph)})}));
}

void convert_square(OnnxGraph& graph) {
  const std::string x = graph.tensor("self");
  graph.give(graph.add("Mul", {x, x}));
}

void clip(OnnxGraph& graph, const char* low, const char* high) {
  const torch::ScalarType type = output_type(graph);
  const auto bound = [&](const char* name) {
    return name != nullptr && graph.has(name) ? graph.operand(name, type) : std::string();
  };
  graph.give(graph.add("Clip", {self_in_output_type(graph), bound(low), bound(high)}));
}
void convert_clamp(OnnxGraph& graph) {
  for (const char* bound : {"min", "max"}) {
    if (graph.has(bound) && graph.is_tensor(bound)) graph.refuse("bounds that are tensors are not supported");
  }
  clip(graph, "min", "max");
}
void convert_clamp_min(OnnxGraph& graph) {
  clip(graph, "min", nullptr);
}
void convert_clamp_max(OnnxGraph& graph) {
  clip(graph, nullptr, "max");
}
void convert_hardtanh(OnnxGraph& graph) {
  clip(graph, "min_val", "max_val");
}

void convert_leaky_relu(OnnxGraph& graph) {
  const float slope = static_cast<float>(graph.real("negative_slope"));
  graph.give(graph.add("LeakyRelu", {graph.tensor("self")}, {{"alpha", slope}}));
}

// scale * (x above 0, alpha * (exp(input_scale * x) - 1) below).
void convert_elu(OnnxGraph& graph) {
  const torch::ScalarType type = output_type(graph);
  const std::string x = graph.tensor("self");
  const double alpha = graph.real("alpha"), scale = graph.real("scale"), input_scale = graph.real("input_scale");
  const auto times = [&](const std::string& value, double factor) {
    return factor == 1 ? value : graph.add("Mul", {value, graph.scalar(factor, type)});
  };
  if (input_scale == 1) {
    return graph.give(times(graph.add("Elu", {x}, {{"alpha", static_cast<float>(alpha)}}), scale));
  }
  const std::string below = graph.add("Exp", {times(graph.add("Min", {x, graph.scalar(0, type)}), input_scale)});
  const std::string curve = times(graph.add("Sub", {below, graph.scalar(1, type)}), alpha);
  graph.give(times(graph.add("Add", {graph.add("Relu", {x}), curve}), scale));
}

void convert_silu(OnnxGraph& graph) {
  const std::string x = graph.tensor("self");
  graph.give(graph.add("Mul", {x, graph.add("Sigmoid", {x})}));
}

void convert_softplus(OnnxGraph& graph) {
  if (graph.real("beta") != 1) graph.refuse("beta is not supported");
  graph.give(graph.add("Softplus", {graph.tensor("self")}));
}

// -log(1 + exp(-x)).
void convert_log_sigmoid(OnnxGraph& graph) {
  graph.give(graph.add("Neg", {graph.add("Softplus", {graph.add("Neg", {graph.tensor("self")})})}));
}

void convert_mish(OnnxGraph& graph) {
  const std::string x = graph.tensor("self");
  graph.give(graph.add("Mul", {x, graph.add("Tanh", {graph.add("Softplus", {x})})}));
}

void convert_hardsigmoid(OnnxGraph& graph) {
  graph.give(graph.add("HardSigmoid", {graph.tensor("self")}, {{"alpha", 1.0F / 6}, {"beta", 0.5F}}));
}

// x / 2 * (1 + erf(x / sqrt(2))), or with tanh(sqrt(2 / pi) * (x + 0.044715 x³)) instead of erf.
void convert_gelu(OnnxGraph& graph) {
  const torch::ScalarType type = output_type(graph);
  const std::string x = graph.tensor("self");
  const auto times = [&](const std::string& value, double factor) {
    return graph.add("Mul", {value, graph.scalar(factor, type)});
  };
  std::string inner;
  if (graph.text("approximate") == "tanh") {
    const std::string cube = graph.add("Mul", {graph.add("Mul", {x, x}), x});
    const double scale = std::sqrt(2 * std::numbers::inv_pi);
    inner = graph.add("Tanh", {times(graph.add("Add", {x, times(cube, 0.044715)}), scale)});
  } else {
    inner = graph.add("Erf", {times(x, 1 / std::numbers::sqrt2)});
  }
  graph.give(graph.add("Mul", {times(x, 0.5), graph.add("Add", {inner, graph.scalar(1, type)})}));
}

// A slope a channel stands in the dimension of the channels.
void convert_prelu(OnnxGraph& graph) {
  const ValueId slope = graph.value("weight");
  const std::int64_t slopes = graph.size(slope, 0), rank = graph.rank(graph.value("self"));
  Ints shape{slopes};
  if (slopes > 1) shape.resize(std::max<std::int64_t>(rank - 1, 1), 1);
  const std::string name = graph.constant(slope) ? graph.reshaped_constant(slope, shape)
                                                 : graph.add("Reshape", {graph.name(slope), graph.list(shape)});
  graph.give(graph.add("PRelu", {graph.tensor("self"), name}));
}

// --- convolutions and products

void convert_convolution(OnnxGraph& graph) {
  const Ints padding = graph.integers("padding"), dilation = graph.integers("dilation");
  const Ints stride = graph.integers("stride");
  const ValueId weight = graph.value("weight");
  Ints shape;
  for (std::int64_t i = 0; i < graph.rank(weight); ++i) shape.push_back(graph.size(weight, i));
  const std::size_t dims = shape.size() - 2;
  const auto each = [&](const Ints& values) { return values.size() == 1 ? Ints(dims, values[0]) : values; };
  Ints pads = each(padding);
  pads.insert(pads.end(), pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(dims));
  std::vector<onnx::Attribute> attributes{{"kernel_shape", Ints(shape.begin() + 2, shape.end())},
                                          {"strides", each(stride)},
                                          {"pads", pads},
                                          {"dilations", each(dilation)},
                                          {"group", graph.integer("groups")}};
  const bool transposed = graph.flag("transposed");
  if (transposed) attributes.push_back({"output_padding", each(graph.integers("output_padding"))});
  graph.give(graph.add(
      transposed ? "ConvTranspose" : "Conv",
      {graph.tensor("input"), graph.tensor("weight"), graph.has("bias") ? graph.tensor("bias") : std::string()},
      attributes));
}

std::string swapped_last(OnnxGraph& graph, ValueId id) {
  Ints order(graph.rank(id));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  return graph.transpose(graph.name(id), order);
}

void convert_linear(OnnxGraph& graph) {
  const std::string product = graph.add("MatMul", {graph.tensor("input"), swapped_last(graph, graph.value("weight"))});
  graph.give(graph.has("bias") ? graph.add("Add", {product, graph.tensor("bias")}) : product);
}

void convert_matmul(OnnxGraph& graph) {
  graph.give(graph.add("MatMul", {graph.tensor("self"), graph.tensor(graph.has("mat2") ? "mat2" : "other")}));
}

void add_to_product(OnnxGraph& graph, const char* first, const char* second) {
  const torch::ScalarType type = output_type(graph);
  const auto times = [&](const std::string& value, const char* factor) {
    return graph.real(factor) == 1 ? value : graph.add("Mul", {value, graph.scalar(graph.real(factor), type)});
  };
  const std::string product = graph.add("MatMul", {graph.tensor(first), graph.tensor(second)});
  if (graph.real("beta") == 0) return graph.give(times(product, "alpha"));
  graph.give(graph.add("Add", {times(graph.tensor("self"), "beta"), times(product, "alpha")}));
}
void convert_addmm(OnnxGraph& graph) {
  add_to_product(graph, "mat1", "mat2");
}
void convert_baddbmm(OnnxGraph& graph) {
  add_to_product(graph, "batch1", "batch2");
}

// softmax(query · keyᵀ · scale + mask) · value.
void convert_attention(OnnxGraph& graph) {
  const ValueId query = graph.value("query");
  if (graph.flag("is_causal")) graph.refuse("is_causal is not supported");
  const torch::ScalarType type = output_type(graph);
  const double scale =
      graph.has("scale") ? graph.real("scale") : 1 / std::sqrt(static_cast<double>(graph.size(query, -1)));
  const std::string scaled = graph.add("Mul", {graph.name(query), graph.scalar(scale, type)});
  std::string scores = graph.add("MatMul", {scaled, swapped_last(graph, graph.value("key"))});
  if (graph.has("attn_mask")) {
    if (graph.type(graph.value("attn_mask")) == torch::kBool) graph.refuse("a mask of bools is not supported");
    scores = graph.add("Add", {scores, graph.tensor("attn_mask")});
  }
  const std::string shares = graph.add("Softmax", {scores}, {{"axis", std::int64_t{-1}}});
  graph.give(graph.add("MatMul", {shares, graph.tensor("value")}));
}

void convert_softmax(OnnxGraph& graph) {
  graph.give(graph.add("Softmax", {self_in_output_type(graph)}, {{"axis", graph.integer("dim")}}));
}

// --- normalisation

std::string filled(OnnxGraph& graph, std::int64_t count, double value, torch::ScalarType type) {
  return graph.add("Expand", {graph.scalar(value, type), graph.list(Ints{count})});
}

std::string or_filled(OnnxGraph& graph, const char* argument, std::int64_t count, double value) {
  return graph.has(argument) ? graph.tensor(argument) : filled(graph, count, value, output_type(graph));
}

void convert_layer_norm(OnnxGraph& graph) {
  const ValueId input = graph.value("input");
  const Ints shape = graph.integers("normalized_shape");
  std::string weight = graph.has("weight") ? graph.tensor("weight") : std::string();
  if (weight.empty()) weight = graph.add("Expand", {graph.scalar(1, output_type(graph)), graph.list(shape)});
  graph.give(graph.add(
      "LayerNormalization", {graph.name(input), weight, graph.has("bias") ? graph.tensor("bias") : std::string()},
      {{"axis", -static_cast<std::int64_t>(shape.size())}, {"epsilon", static_cast<float>(graph.real("eps"))}}));
}

std::string per_channel(OnnxGraph& graph, const char* argument, std::int64_t rank) {
  const ValueId id = graph.value(argument);
  Ints shape(rank - 1, 1);
  shape[0] = graph.size(id, 0);
  if (graph.constant(id)) return graph.reshaped_constant(id, shape);
  return graph.add("Reshape", {graph.name(id), graph.list(shape)});
}

// A group becomes one long channel, which is normalised by itself.
void convert_group_norm(OnnxGraph& graph) {
  const ValueId input = graph.value("input");
  const std::int64_t groups = graph.integer("num_groups"), rank = graph.rank(input);
  const torch::ScalarType type = output_type(graph);
  std::string x = graph.add("Reshape", {graph.name(input), graph.list(Ints{0, groups, -1})});
  x = graph.add("InstanceNormalization", {x, filled(graph, groups, 1, type), filled(graph, groups, 0, type)},
                {{"epsilon", static_cast<float>(graph.real("eps"))}});
  x = graph.reshape(x, {}, graph.shape(input));
  if (graph.has("weight")) x = graph.add("Mul", {x, per_channel(graph, "weight", rank)});
  if (graph.has("bias")) x = graph.add("Add", {x, per_channel(graph, "bias", rank)});
  graph.give(x);
}

void convert_instance_norm(OnnxGraph& graph) {
  if (!graph.flag("use_input_stats")) graph.refuse("running statistics are not supported");
  const std::int64_t channels = graph.size(graph.value("input"), 1);
  graph.give(
      graph.add("InstanceNormalization",
                {graph.tensor("input"), or_filled(graph, "weight", channels, 1), or_filled(graph, "bias", channels, 0)},
                {{"epsilon", static_cast<float>(graph.real("eps"))}}));
}

void convert_batch_norm(OnnxGraph& graph) {
  if (graph.flag("training")) graph.refuse("statistics of a batch are not supported");
  const std::int64_t channels = graph.size(graph.value("input"), 1);
  graph.give(
      graph.add("BatchNormalization",
                {graph.tensor("input"), or_filled(graph, "weight", channels, 1), or_filled(graph, "bias", channels, 0),
                 graph.tensor("running_mean"), graph.tensor("running_var")},
                {{"epsilon", static_cast<float>(graph.real("eps"))}}));
}

// --- over dimensions

// "dim" from 0 on; all of them where none is given.
Ints reduced_dims(OnnxGraph& graph, ValueId self) {
  Ints dims;
  if (graph.has("dim")) dims = graph.integers("dim");
  for (std::int64_t& dim : dims) dim = wrapped(dim, graph.rank(self));
  if (!dims.empty()) return dims;
  for (std::int64_t i = 0; i < graph.rank(self); ++i) dims.push_back(i);
  return dims;
}

void convert_reduction(OnnxGraph& graph, const char* onnx) {
  const Ints dims = reduced_dims(graph, graph.value("self"));
  graph.give(graph.reduce(onnx, self_in_output_type(graph), dims, graph.flag("keepdim")));
}
void convert_mean(OnnxGraph& graph) {
  convert_reduction(graph, "ReduceMean");
}
void convert_total(OnnxGraph& graph) {
  convert_reduction(graph, "ReduceSum");
}
void convert_amax(OnnxGraph& graph) {
  convert_reduction(graph, "ReduceMax");
}
void convert_amin(OnnxGraph& graph) {
  convert_reduction(graph, "ReduceMin");
}
void convert_vector_norm(OnnxGraph& graph) {
  if (graph.real(graph.operation().name == "norm" ? "p" : "ord") != 2)
    graph.refuse("orders other than 2 are not supported");
  convert_reduction(graph, "ReduceL2");
}

struct Spread {
  std::string variance, mean;
};

// By n - correction.
Spread spread(OnnxGraph& graph) {
  const ValueId self = graph.value("self");
  const torch::ScalarType type = output_type(graph);
  const Ints dims = reduced_dims(graph, self);
  double correction = 1;
  if (graph.has("correction")) correction = graph.real("correction");
  if (graph.has("unbiased")) correction = graph.flag("unbiased") ? 1 : 0;
  const std::string x = graph.name(self), mean = graph.reduce("ReduceMean", x, dims, true);
  const std::string way = graph.add("Sub", {x, mean});
  std::string variance = graph.reduce("ReduceMean", graph.add("Mul", {way, way}), dims, true);
  if (correction != 0) {
    double count = 1;
    for (const std::int64_t dim : dims) count *= static_cast<double>(graph.size(self, dim));
    variance = graph.add("Mul", {variance, graph.scalar(count / (count - correction), type)});
  }
  if (graph.flag("keepdim")) return {variance, mean};
  return {graph.add("Squeeze", {variance, graph.list(dims)}), graph.add("Squeeze", {mean, graph.list(dims)})};
}

void convert_var_mean(OnnxGraph& graph) {
  const Spread found = spread(graph);
  graph.give(found.variance, 0);
  graph.give(found.mean, 1);
}
void convert_var(OnnxGraph& graph) {
  graph.give(spread(graph).variance);
}
void convert_std(OnnxGraph& graph) {
  graph.give(graph.add("Sqrt", {spread(graph).variance}));
}

void convert_adaptive_avg_pool2d(OnnxGraph& graph) {
  if (graph.integers("output_size") != Ints{1, 1}) graph.refuse("only the mean of the whole picture is supported");
  const std::int64_t rank = graph.rank(graph.value("self"));
  graph.give(graph.reduce("ReduceMean", graph.tensor("self"), Ints{rank - 2, rank - 1}, true));
}

void convert_adaptive_max_pool2d(OnnxGraph& graph) {
  if (graph.integers("output_size") != Ints{1, 1}) graph.refuse("only the maximum of the whole picture is supported");
  const std::int64_t rank = graph.rank(graph.value("self"));
  graph.give(graph.reduce("ReduceMax", graph.tensor("self"), Ints{rank - 2, rank - 1}, true));
}

// Of all values, or along a dimension; of two tensors as well. Where it was found is not given.
void convert_extreme(OnnxGraph& graph, const char* of_two, const char* over_dims) {
  if (graph.has("other")) return convert_binary(graph, of_two);
  convert_reduction(graph, over_dims);
}
void convert_max(OnnxGraph& graph) {
  convert_extreme(graph, "Max", "ReduceMax");
}
void convert_min(OnnxGraph& graph) {
  convert_extreme(graph, "Min", "ReduceMin");
}

std::vector<onnx::Attribute> pool_attributes(OnnxGraph& graph) {
  const auto pair = [](Ints values) { return values.size() == 1 ? Ints(2, values[0]) : values; };
  const Ints kernel = pair(graph.integers("kernel_size")), padding = pair(graph.integers("padding"));
  Ints stride = pair(graph.integers("stride"));
  if (stride.empty()) stride = kernel;
  return {{"kernel_shape", kernel},
          {"strides", stride},
          {"pads", Ints{padding[0], padding[1], padding[0], padding[1]}},
          {"ceil_mode", std::int64_t{graph.flag("ceil_mode")}}};
}

void convert_avg_pool2d(OnnxGraph& graph) {
  if (graph.has("divisor_override")) graph.refuse("divisor_override is not supported");
  std::vector<onnx::Attribute> attributes = pool_attributes(graph);
  attributes.push_back({"count_include_pad", std::int64_t{graph.flag("count_include_pad")}});
  graph.give(graph.add("AveragePool", {graph.tensor("self")}, attributes));
}

void convert_max_pool2d(OnnxGraph& graph) {
  if (!std::ranges::all_of(graph.integers("dilation"), [](std::int64_t d) { return d == 1; })) {
    graph.refuse("dilation is not supported");
  }
  graph.give(graph.add("MaxPool", {graph.tensor("self")}, pool_attributes(graph)));
}

// --- shapes

void convert_reshape(OnnxGraph& graph) {
  const ValueId self = graph.value("self");
  if (graph.type(self) != output_type(graph)) graph.refuse("a view in another type is not supported");
  graph.give(graph.reshape(graph.name(self), graph.shape(self), graph.shape(graph.output())));
}

void convert_unsqueeze(OnnxGraph& graph) {
  const std::int64_t dim = wrapped(graph.integer("dim"), graph.rank(graph.output()));
  graph.give(graph.add("Unsqueeze", {graph.tensor("self"), graph.list(Ints{dim})}));
}

void convert_permute(OnnxGraph& graph) {
  Ints order = graph.integers("dims");
  for (std::int64_t& dim : order) dim = wrapped(dim, static_cast<std::int64_t>(order.size()));
  graph.give(graph.transpose(graph.tensor("self"), order));
}

void convert_transpose(OnnxGraph& graph) {
  const ValueId self = graph.value("self");
  Ints order(graph.rank(self));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
  const bool given = graph.has("dim0");
  if (order.size() > 1) {
    std::swap(order[given ? wrapped(graph.integer("dim0"), graph.rank(self)) : 0],
              order[given ? wrapped(graph.integer("dim1"), graph.rank(self)) : 1]);
  }
  graph.give(graph.transpose(graph.name(self), order));
}

void convert_slice(OnnxGraph& graph) {
  const std::int64_t dim = wrapped(graph.integer("dim"), graph.rank(graph.value("self")));
  const SizedNumber begin = graph.has("start") ? graph.number("start") : fixed_number(0);
  const SizedNumber end = graph.has("end") ? graph.number("end") : fixed_number(kToEnd);
  graph.give(graph.slice(graph.tensor("self"), dim, begin, end, graph.integer("step")));
}

std::string picked(OnnxGraph& graph, std::int64_t dim, std::int64_t index) {
  return graph.add("Gather", {graph.tensor("self"), graph.scalar(static_cast<double>(index), torch::kInt64)},
                   {{"axis", dim}});
}

void convert_select(OnnxGraph& graph) {
  const std::int64_t dim = wrapped(graph.integer("dim"), graph.rank(graph.value("self")));
  graph.give(picked(graph, dim, graph.integer("index")));
}

void convert_unbind(OnnxGraph& graph) {
  const std::int64_t dim = wrapped(graph.integer("dim"), graph.rank(graph.value("self")));
  for (std::size_t i = 0; i < graph.operation().outputs.size(); ++i) {
    graph.give(picked(graph, dim, static_cast<std::int64_t>(i)), i);
  }
}

void convert_index_select(OnnxGraph& graph) {
  graph.give(graph.add("Gather", {graph.tensor("self"), graph.tensor("index")}, {{"axis", graph.integer("dim")}}));
}

// One part after the other.
void convert_split(OnnxGraph& graph) {
  const std::size_t parts = graph.operation().outputs.size();
  const std::int64_t dim = wrapped(graph.integer("dim"), graph.rank(graph.value("self")));
  if (parts == 1) return graph.give(graph.tensor("self"));
  double begin = 0;
  for (std::size_t i = 0; i < parts; ++i) {
    const double end = begin + static_cast<double>(graph.size(graph.output(i), dim));
    graph.give(graph.slice(graph.tensor("self"), dim, fixed_number(begin), fixed_number(end)), i);
    begin = end;
  }
}

void convert_cat(OnnxGraph& graph) {
  std::vector<std::string> parts;
  for (const ValueId id : graph.values("tensors")) parts.push_back(graph.name(id, output_type(graph)));
  graph.give(graph.add("Concat", parts, {{"axis", wrapped(graph.integer("dim"), graph.rank(graph.output()))}}));
}

void convert_stack(OnnxGraph& graph) {
  const std::int64_t dim = wrapped(graph.integer("dim"), graph.rank(graph.output()));
  std::vector<std::string> parts;
  for (const ValueId id : graph.values("tensors")) {
    parts.push_back(graph.add("Unsqueeze", {graph.name(id), graph.list(Ints{dim})}));
  }
  graph.give(graph.add("Concat", parts, {{"axis", dim}}));
}

void convert_expand(OnnxGraph& graph) {
  graph.give(graph.add("Expand", {graph.tensor("self"), graph.list(graph.shape(graph.output()))}));
}

void convert_repeat(OnnxGraph& graph) {
  const ValueId self = graph.value("self");
  const std::vector<SizedNumber> repeats = graph.numbers("repeats"), shape = graph.shape(self);
  std::vector<SizedNumber> padded(repeats.size() - shape.size(), fixed_number(1));
  padded.insert(padded.end(), shape.begin(), shape.end());
  graph.give(graph.add("Tile", {graph.reshape(graph.name(self), shape, padded), graph.list(repeats)}));
}

// [begin:] and then [:begin].
void convert_roll(OnnxGraph& graph) {
  const ValueId self = graph.value("self");
  const Ints dims = graph.integers("dims");
  const std::vector<SizedNumber> shifts = graph.numbers("shifts");
  if (dims.empty()) graph.refuse("without dimensions it is not supported");
  std::string x = graph.name(self);
  for (std::size_t i = 0; i < dims.size(); ++i) {
    const std::int64_t dim = wrapped(dims[i], graph.rank(self));
    SizedNumber begin = shifts[i];
    begin.factor = -begin.factor;
    begin.offset = -begin.offset;
    if (begin == fixed_number(0)) continue;
    x = graph.add("Concat",
                  {graph.slice(x, dim, begin, fixed_number(kToEnd)), graph.slice(x, dim, fixed_number(0), begin)},
                  {{"axis", dim}});
  }
  graph.give(x);
}

void convert_flip(OnnxGraph& graph) {
  std::string x = graph.tensor("self");
  for (const std::int64_t dim : graph.integers("dims")) {
    x = graph.slice(x, wrapped(dim, graph.rank(graph.value("self"))), fixed_number(-1), fixed_number(-kToEnd), -1);
  }
  graph.give(x);
}

// torch counts from the last dimension, before and after each.
void pad(OnnxGraph& graph, const char* amounts, const char* mode) {
  const ValueId self = graph.value("self");
  const std::size_t rank = graph.rank(self);
  const std::vector<SizedNumber> given = graph.numbers(amounts);
  std::vector<SizedNumber> pads(rank * 2, fixed_number(0));
  for (std::size_t i = 0; i < given.size() / 2; ++i) {
    pads[rank - 1 - i] = given[2 * i];
    pads[2 * rank - 1 - i] = given[2 * i + 1];
  }
  std::vector<std::string> inputs{graph.name(self), graph.list(pads)};
  if (graph.has("value")) inputs.push_back(graph.scalar(graph.real("value"), output_type(graph)));
  graph.give(graph.add("Pad", inputs, {{"mode", std::string(mode)}}));
}
void convert_constant_pad(OnnxGraph& graph) {
  pad(graph, "pad", "constant");
}
void convert_reflection_pad(OnnxGraph& graph) {
  pad(graph, "padding", "reflect");
}
void convert_replication_pad(OnnxGraph& graph) {
  pad(graph, "padding", "edge");
}

// What leaves at one side comes in at the other.
void pad_around(OnnxGraph& graph) {
  const ValueId self = graph.value("self");
  const Ints pads = graph.integers("pad");
  std::string x = graph.name(self);
  for (std::size_t i = 0; i < pads.size() / 2; ++i) {
    const std::int64_t dim = graph.rank(self) - 1 - static_cast<std::int64_t>(i);
    const auto before = static_cast<double>(pads[2 * i]), after = static_cast<double>(pads[2 * i + 1]);
    if (before < 0 || after < 0) graph.refuse("less than nothing around a picture is not supported");
    std::vector<std::string> parts{x};
    if (before > 0) parts.insert(parts.begin(), graph.slice(x, dim, fixed_number(-before), fixed_number(kToEnd)));
    if (after > 0) parts.push_back(graph.slice(x, dim, fixed_number(0), fixed_number(after)));
    if (parts.size() > 1) x = graph.add("Concat", parts, {{"axis", dim}});
  }
  graph.give(x);
}

void convert_pad(OnnxGraph& graph) {
  const std::string mode = graph.text("mode");
  if (mode == "circular") return pad_around(graph);
  pad(graph, "pad", mode == "replicate" ? "edge" : mode.c_str());
}

// --- pictures of other sizes

void convert_pixel_shuffle(OnnxGraph& graph) {
  if (graph.rank(graph.output()) != 4) graph.refuse("only of four dimensions");
  graph.give(graph.add("DepthToSpace", {graph.tensor("self")},
                       {{"blocksize", graph.integer("upscale_factor")}, {"mode", std::string("CRD")}}));
}

void convert_channel_shuffle(OnnxGraph& graph) {
  const ValueId self = graph.value("self");
  const std::vector<SizedNumber> shape = graph.shape(self);
  const std::int64_t groups = graph.integer("groups"), channels = graph.size(self, 1);
  std::vector<SizedNumber> cut{shape[0], fixed_number(static_cast<double>(groups)),
                               fixed_number(static_cast<double>(channels / groups))};
  cut.insert(cut.end(), shape.begin() + 2, shape.end());
  Ints order(cut.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
  std::swap(order[1], order[2]);
  const std::string turned = graph.transpose(graph.reshape(graph.name(self), shape, cut), order);
  std::swap(cut[1], cut[2]);
  graph.give(graph.reshape(turned, cut, shape));
}

// SpaceToDepth orders the channels in another way.
void convert_pixel_unshuffle(OnnxGraph& graph) {
  const ValueId self = graph.value("self");
  if (graph.rank(self) != 4) graph.refuse("only of four dimensions");
  const double factor = static_cast<double>(graph.integer("downscale_factor"));
  const std::vector<SizedNumber> from = graph.shape(self), to = graph.shape(graph.output());
  const SizedNumber cell = fixed_number(factor);
  std::string x = graph.reshape(graph.name(self), from, {from[0], from[1], to[2], cell, to[3], cell});
  x = graph.transpose(x, {0, 1, 3, 5, 2, 4});
  graph.give(graph.reshape(x, {from[0], from[1], cell, cell, to[2], to[3]}, to));
}

// By factors where height and width have one, so that the graph needs no sizes.
void resize(OnnxGraph& graph, std::vector<onnx::Attribute> attributes) {
  const ValueId self = graph.value(graph.has("self") ? "self" : "input");
  const std::vector<SizedNumber> from = graph.shape(self), to = graph.shape(graph.output());
  std::vector<float> factors{1, 1};
  for (const std::size_t dim : {2, 3}) {
    const bool proportional = from[dim].base == to[dim].base && from[dim].offset == 0 && to[dim].offset == 0;
    const double factor = to[dim].factor / from[dim].factor;
    if (proportional && static_cast<float>(factor) == factor) factors.push_back(static_cast<float>(factor));
  }
  if (factors.size() == 4) {
    const std::string scales = graph.floats(factors);
    return graph.give(graph.add("Resize", {graph.name(self), "", scales}, std::move(attributes)));
  }
  graph.give(graph.add("Resize", {graph.name(self), "", "", graph.list(to)}, std::move(attributes)));
}

std::string corners(OnnxGraph& graph) {
  return graph.flag("align_corners") ? "align_corners" : "pytorch_half_pixel";
}

void convert_nearest(OnnxGraph& graph) {
  resize(graph, {{"mode", std::string("nearest")},
                 {"coordinate_transformation_mode", std::string("asymmetric")},
                 {"nearest_mode", std::string("floor")}});
}
void convert_nearest_exact(OnnxGraph& graph) {
  resize(graph, {{"mode", std::string("nearest")},
                 {"coordinate_transformation_mode", std::string("half_pixel")},
                 {"nearest_mode", std::string("round_prefer_ceil")}});
}
void convert_bilinear(OnnxGraph& graph) {
  resize(graph, {{"mode", std::string("linear")}, {"coordinate_transformation_mode", corners(graph)}});
}
void convert_bicubic(OnnxGraph& graph) {
  resize(
      graph,
      {{"mode", std::string("cubic")}, {"coordinate_transformation_mode", corners(graph)}, {"cubic_coeff_a", -0.75F}});
}

void convert_grid_sampler(OnnxGraph& graph) {
  constexpr int kNewNames = 20;
  constexpr std::array kOld{"bilinear", "nearest", "bicubic"}, kNew{"linear", "nearest", "cubic"};
  constexpr std::array kPadding{"zeros", "border", "reflection"};
  const auto& modes = graph.opset() < kNewNames ? kOld : kNew;
  graph.give(graph.add("GridSample", {graph.tensor("input"), graph.tensor("grid")},
                       {{"mode", std::string(modes.at(graph.integer("interpolation_mode")))},
                        {"padding_mode", std::string(kPadding.at(graph.integer("padding_mode")))},
                        {"align_corners", std::int64_t{graph.flag("align_corners")}}}));
}

// --- tensors as they are, and new ones

void convert_identity(OnnxGraph& graph) {
  graph.give(self_in_output_type(graph));
}

void convert_copy(OnnxGraph& graph) {
  const ValueId source = graph.value("src");
  const std::string value = graph.name(source, output_type(graph));
  const auto shape = graph.shape(graph.output());
  graph.give(graph.shape(source) == shape ? value : graph.add("Expand", {value, graph.list(shape)}));
}

// Range knows no half.
void convert_arange(OnnxGraph& graph) {
  const torch::ScalarType type = output_type(graph);
  const bool whole = type == torch::kInt64 || type == torch::kInt32;
  const torch::ScalarType counted = whole ? type : torch::kFloat32;
  const auto or_else = [&](const char* name, double standard) {
    return graph.scalar(graph.has(name) ? graph.number(name) : fixed_number(standard), counted);
  };
  const std::string range = graph.add("Range", {or_else("start", 0), or_else("end", 0), or_else("step", 1)});
  graph.give(counted == type ? range : graph.cast(range, type));
}

void fill(OnnxGraph& graph, const SizedNumber& value) {
  const std::string number = graph.scalar(value, output_type(graph));
  graph.give(graph.add("Expand", {number, graph.list(graph.shape(graph.output()))}));
}
void convert_zeros(OnnxGraph& graph) {
  fill(graph, fixed_number(0));
}
void convert_ones(OnnxGraph& graph) {
  fill(graph, fixed_number(1));
}
void convert_full(OnnxGraph& graph) {
  fill(graph, graph.number("fill_value"));
}
void convert_fill(OnnxGraph& graph) {
  if (graph.is_tensor("value")) graph.refuse("a value that is a tensor is not supported");
  fill(graph, graph.number("value"));
}

struct Row {
  std::string_view name;
  Convert convert;
};
constexpr std::array kRows{
    Row{"add", convert_add},
    Row{"sub", convert_sub},
    Row{"rsub", convert_rsub},
    Row{"div", convert_div},
    Row{"addcmul", convert_addcmul},
    Row{"addcdiv", convert_addcdiv},
    Row{"lerp", convert_lerp},
    Row{"gt", convert_gt},
    Row{"ge", convert_ge},
    Row{"lt", convert_lt},
    Row{"le", convert_le},
    Row{"where", convert_where},
    Row{"masked_fill", convert_masked_fill},
    Row{"rsqrt", convert_rsqrt},
    Row{"square", convert_square},
    Row{"clamp", convert_clamp},
    Row{"clamp_min", convert_clamp_min},
    Row{"clamp_max", convert_clamp_max},
    Row{"hardtanh", convert_hardtanh},
    Row{"leaky_relu", convert_leaky_relu},
    Row{"elu", convert_elu},
    Row{"silu", convert_silu},
    Row{"softplus", convert_softplus},
    Row{"mish", convert_mish},
    Row{"log_sigmoid", convert_log_sigmoid},
    Row{"hardsigmoid", convert_hardsigmoid},
    Row{"gelu", convert_gelu},
    Row{"prelu", convert_prelu},
    Row{"convolution", convert_convolution},
    Row{"linear", convert_linear},
    Row{"matmul", convert_matmul},
    Row{"mm", convert_matmul},
    Row{"bmm", convert_matmul},
    Row{"addmm", convert_addmm},
    Row{"baddbmm", convert_baddbmm},
    Row{"scaled_dot_product_attention", convert_attention},
    Row{"softmax", convert_softmax},
    Row{"_softmax", convert_softmax},
    Row{"layer_norm", convert_layer_norm},
    Row{"group_norm", convert_group_norm},
    Row{"instance_norm", convert_instance_norm},
    Row{"batch_norm", convert_batch_norm},
    Row{"mean", convert_mean},
    Row{"sum", convert_total},
    Row{"amax", convert_amax},
    Row{"amin", convert_amin},
    Row{"norm", convert_vector_norm},
    Row{"linalg_vector_norm", convert_vector_norm},
    Row{"var_mean", convert_var_mean},
    Row{"var", convert_var},
    Row{"std", convert_std},
    Row{"adaptive_avg_pool2d", convert_adaptive_avg_pool2d},
    Row{"adaptive_max_pool2d", convert_adaptive_max_pool2d},
    Row{"max", convert_max},
    Row{"min", convert_min},
    Row{"avg_pool2d", convert_avg_pool2d},
    Row{"max_pool2d", convert_max_pool2d},
    Row{"view", convert_reshape},
    Row{"reshape", convert_reshape},
    Row{"_unsafe_view", convert_reshape},
    Row{"_reshape_alias", convert_reshape},
    Row{"flatten", convert_reshape},
    Row{"unflatten", convert_reshape},
    Row{"squeeze", convert_reshape},
    Row{"unsqueeze", convert_unsqueeze},
    Row{"permute", convert_permute},
    Row{"transpose", convert_transpose},
    Row{"t", convert_transpose},
    Row{"slice", convert_slice},
    Row{"select", convert_select},
    Row{"unbind", convert_unbind},
    Row{"index_select", convert_index_select},
    Row{"split", convert_split},
    Row{"split_with_sizes", convert_split},
    Row{"chunk", convert_split},
    Row{"cat", convert_cat},
    Row{"stack", convert_stack},
    Row{"expand", convert_expand},
    Row{"repeat", convert_repeat},
    Row{"roll", convert_roll},
    Row{"flip", convert_flip},
    Row{"pad", convert_pad},
    Row{"constant_pad_nd", convert_constant_pad},
    Row{"reflection_pad1d", convert_reflection_pad},
    Row{"reflection_pad2d", convert_reflection_pad},
    Row{"replication_pad2d", convert_replication_pad},
    Row{"channel_shuffle", convert_channel_shuffle},
    Row{"pixel_shuffle", convert_pixel_shuffle},
    Row{"pixel_unshuffle", convert_pixel_unshuffle},
    Row{"upsample_nearest2d", convert_nearest},
    Row{"_upsample_nearest_exact2d", convert_nearest_exact},
    Row{"upsample_bilinear2d", convert_bilinear},
    Row{"upsample_bicubic2d", convert_bicubic},
    Row{"grid_sampler_2d", convert_grid_sampler},
    Row{"clone", convert_identity},
    Row{"contiguous", convert_identity},
    Row{"detach", convert_identity},
    Row{"alias", convert_identity},
    Row{"to", convert_identity},
    Row{"_to_copy", convert_identity},
    Row{"copy", convert_copy},
    Row{"arange", convert_arange},
    Row{"zeros", convert_zeros},
    Row{"zeros_like", convert_zeros},
    Row{"new_zeros", convert_zeros},
    Row{"ones", convert_ones},
    Row{"ones_like", convert_ones},
    Row{"new_ones", convert_ones},
    Row{"zero", convert_zeros},
    Row{"fill", convert_fill},
    Row{"full", convert_full},
    Row{"full_like", convert_full},
    Row{"new_full", convert_full},
};

template <class Table>
auto find_row(const Table& table, std::string_view name) {
  const auto* row = std::ranges::find(table, name, &Table::value_type::name);
  return row == table.end() ? nullptr : row;
}

}  // namespace
}  // namespace onnx_operations

bool onnx_knows(std::string_view operation) {
  using namespace onnx_operations;
  return find_row(kRows, operation) != nullptr || find_row(kUnary, operation) != nullptr ||
         find_row(kBinary, operation) != nullptr;
}

void convert_operation(OnnxGraph& graph) {
  using namespace onnx_operations;
  const std::string& name = graph.operation().name;
  if (const auto* row = find_row(kRows, name)) return row->convert(graph);
  if (const auto* row = find_row(kUnary, name)) return convert_unary(graph, row->onnx);
  if (const auto* row = find_row(kBinary, name)) return convert_binary(graph, row->onnx);
  graph.refuse("it is not supported");
}

}  // namespace reelgrad
