#include "reelgrad/nn/own_conv.h"

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>

#include "reelgrad/base/error.h"
#include "reelgrad/nn/own_conv_backward.h"
#include "reelgrad/nn/own_conv_forward.h"
#include "reelgrad/nn/own_conv_row.h"

namespace reelgrad {
namespace own {
namespace {

enum class Choice { own, by_warps, torchs };

Choice choice() {
  static const Choice chosen = [] {
    const char* set = std::getenv("REELGRAD_CONV");
    const std::string_view name = set == nullptr || *set == '\0' ? "own" : set;
    if (name == "own") return Choice::own;
    if (name == "own80") return Choice::by_warps;
    if (name == "aten" || name == "cudnn") return Choice::torchs;
    fail_usage("REELGRAD_CONV: unknown \"" + std::string(name) + "\" (known: own, own80, aten, cudnn)");
  }();
  return chosen;
}

bool card_has_them(torch::Device device) {
  switch (choice()) {
    case Choice::own:
      return cuda::has_conv(device.index());
    case Choice::by_warps:
      return cuda::warp::has_conv(device.index());
    case Choice::torchs:
      return false;
  }
  return false;
}

bool differentiated(const torch::Tensor& input, std::span<const ConvLayer> layers, const OwnConvEnd& end) {
  if (!torch::GradMode::is_enabled()) return false;
  const auto wanted = [](const torch::Tensor& t) { return t.defined() && t.requires_grad(); };
  return wanted(input) || wanted(end.picture) || wanted(end.residual) ||
         std::ranges::any_of(layers, [&](const ConvLayer& layer) {
           return wanted(layer.weight) || wanted(layer.bias) || wanted(layer.slope);
         });
}

// Of a type that the kernels read.
bool is_readable(const torch::Tensor& t, torch::Device device) {
  return t.device() == device && element_is_known(t.scalar_type());
}

bool is_vector(const torch::Tensor& t, std::int64_t size, torch::Device device) {
  return !t.defined() ||
         (is_readable(t, device) && t.dim() == 1 && (t.size(0) == size || t.size(0) == 1) && t.is_contiguous());
}

bool takes_layer(const ConvLayer& layer, std::int64_t in, torch::Device device) {
  const torch::Tensor& w = layer.weight;
  if (!is_readable(w, device) || w.dim() != 4 || w.size(1) != in || w.size(2) != 3 || w.size(3) != 3) return false;
  const std::int64_t out = w.size(0);
  if (in > kConvMostIn || out > kConvMostOut) return false;
  if (layer.bias.defined() && layer.bias.size(0) != out) return false;
  return is_vector(layer.bias, out, device) && is_vector(layer.slope, out, device);
}

bool has_size(const torch::Tensor& t, const torch::Tensor& input, std::int64_t channels) {
  return t.dim() == 4 && t.size(0) == input.size(0) && t.size(1) == channels && t.size(2) == input.size(2) &&
         t.size(3) == input.size(3);
}

bool takes_end(const torch::Tensor& input, const ConvLayer& last, const OwnConvEnd& end, torch::ScalarType type) {
  if (!end.picture.defined() && !end.residual.defined()) return true;
  const std::int64_t out = last.weight.size(0);
  if (last.activation != Activation::none) return false;
  if (end.residual.defined())
    return is_readable(end.residual, input.device()) && end.residual.scalar_type() == type &&
           has_size(end.residual, input, out);
  const std::int64_t squared = std::int64_t{end.scale} * end.scale;
  return choice() == Choice::own && out <= kConvMostShuffled && last.weight.size(1) <= kConvBlock &&
         out % squared == 0 && is_readable(end.picture, input.device()) && has_size(end.picture, input, out / squared);
}

// The picture's part of the end: each of its pixels went to scale² of the result.
torch::Tensor summed_squares(const torch::Tensor& dy, int scale) {
  return dy.unflatten(3, {dy.size(3) / scale, scale}).unflatten(2, {dy.size(2) / scale, scale}).sum({3, 5});
}

// The tensors of a row that are there, as an autograd function takes them: input, what is added at the end, and of each
// layer weight, bias and slope.
struct Arguments {
  torch::Tensor input, added;
  Tensors parameters;  // three a layer, undefined where there is none

  Tensors list() const {
    Tensors all{input};
    if (added.defined()) all.push_back(added);
    std::ranges::copy_if(parameters, std::back_inserter(all), [](const torch::Tensor& t) { return t.defined(); });
    return all;
  }

  static Arguments of(const Row& row, at::TensorList all) {
    auto next = all.begin();
    const auto take = [&](bool there) { return there ? *next++ : torch::Tensor(); };
    Arguments arguments;
    arguments.input = take(true);
    arguments.added = take(row.adds());
    for (const Row::Layer& layer : row.layers) {
      for (const bool there : {true, layer.has_bias, layer.has_slope}) arguments.parameters.push_back(take(there));
    }
    return arguments;
  }
};

// Undefined for a tensor that is.
torch::Tensor in_type(const torch::Tensor& t, torch::ScalarType type) {
  return t.defined() ? t.to(type) : t;
}

class OwnConv : public torch::autograd::Function<OwnConv> {
 public:
  // `tensors`: the list of Arguments. Input and what is added are not saved for themselves: of them it is enough to
  // know the types.
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const RowPtr& row, at::TensorList tensors) {
    const Arguments arguments = Arguments::of(*row, tensors);
    row->input_type = arguments.input.scalar_type();
    if (row->adds()) row->added_type = arguments.added.scalar_type();
    Forward forward(*row, arguments.parameters);
    torch::Tensor y = forward.run(arguments.input, arguments.added);
    Tensors saved = forward.take_kept().list();
    context->saved_data["kept"] = static_cast<std::int64_t>(saved.size());
    context->saved_data["row"] = c10::IValue::make_capsule(row);
    saved.insert(saved.end(), arguments.parameters.begin(), arguments.parameters.end());
    context->save_for_backward(std::move(saved));
    return y;
  }

  // One gradient for each argument of forward(), the row itself included; undefined where nobody wants it.
  static Tensors backward(torch::autograd::AutogradContext* context, Tensors outputs) {
    if (torch::GradMode::is_enabled())
      fail("the fused convolutions have no second derivatives: set REELGRAD_CONV=aten");
    const torch::Tensor& dy = outputs.front();
    const c10::cuda::CUDAGuard guard(dy.device());
    const auto row = c10::static_intrusive_pointer_cast<Row>(context->saved_data["row"].toCapsule());
    const Tensors saved = context->get_saved_variables();
    const auto parameters = saved.begin() + context->saved_data["kept"].toInt();
    const Kept kept = Kept::of(Tensors(saved.begin(), parameters));
    std::size_t at = 0;  // of the tensors that forward() took
    const bool of_input = context->needs_input_grad(at++);
    const bool of_added = row->adds() && context->needs_input_grad(at++);
    Tensors wanted;
    for (auto parameter = parameters; parameter != saved.end(); ++parameter) {
      const bool needed = parameter->defined() && context->needs_input_grad(at++);
      wanted.push_back(needed ? *parameter : torch::Tensor());
    }
    Backward way_back(*row, kept, wanted, of_input);
    way_back.run(dy);

    Tensors results{torch::Tensor(), in_type(way_back.of_input(), row->input_type)};
    if (row->adds()) results.push_back(of_added ? gradient_of_added(*row, dy) : torch::Tensor());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (parameters[static_cast<std::ptrdiff_t>(i)].defined())
        results.push_back(wanted[i].defined() ? way_back.of_parameters()[i].to(wanted[i].scalar_type())
                                              : torch::Tensor());
    }
    return results;
  }

 private:
  static torch::Tensor gradient_of_added(const Row& row, const torch::Tensor& dy) {
    return in_type(row.end == Row::End::shuffled ? summed_squares(dy, row.scale) : dy, row.added_type);
  }
};

}  // namespace
}  // namespace own

std::size_t own_conv_takes(const torch::Tensor& input, std::span<const ConvLayer> layers, const OwnConvEnd& end) {
  using namespace own;
  if (!input.is_cuda() || input.dim() != 4 || input.numel() == 0 || layers.empty()) return 0;
  const torch::ScalarType type = compute_type(input);
  if (type != torch::kHalf && type != torch::kBFloat16) return 0;
  if (!is_readable(input, input.device()) || !card_has_them(input.device())) return 0;
  std::size_t taken = 0;
  std::int64_t in = input.size(1);
  for (; taken < layers.size() && takes_layer(layers[taken], in, input.device()); ++taken)
    in = layers[taken].weight.size(0);
  const bool all = taken == layers.size();
  return all && !takes_end(input, layers.back(), end, type) ? taken - 1 : taken;
}

torch::Tensor own_conv(const torch::Tensor& input, std::span<const ConvLayer> layers, const OwnConvEnd& end) {
  using namespace own;
  auto row = c10::make_intrusive<Row>();
  row->type = compute_type(input);
  row->by_warps = choice() == Choice::by_warps;
  row->gradients = differentiated(input, layers, end);
  Arguments arguments{input, {}, {}};
  if (end.picture.defined()) {
    row->end = Row::End::shuffled;
    row->scale = end.scale;
    arguments.added = end.picture;
  } else if (end.residual.defined()) {
    row->end = Row::End::added;
    row->factor = static_cast<float>(end.factor);
    arguments.added = end.residual;
  }
  for (const ConvLayer& layer : layers) {
    row->layers.push_back(layer_of(layer));
    const bool taps_in_order = layer.weight.stride(2) == 3 * layer.weight.stride(3);
    arguments.parameters.insert(arguments.parameters.end(),
                                {taps_in_order ? layer.weight : layer.weight.contiguous(), layer.bias, layer.slope});
  }
  if (row->gradients) return OwnConv::apply(row, at::TensorList(arguments.list()));
  return Forward(*row, arguments.parameters).run(input, arguments.added);
}

void require_known_conv_choice() {
  own::choice();
}

bool torch_convolves() {
  return own::choice() == own::Choice::torchs;
}

}  // namespace reelgrad
