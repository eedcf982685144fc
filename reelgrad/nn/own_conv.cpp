#include "reelgrad/nn/own_conv.h"

#include <ATen/autocast_mode.h>
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

constexpr std::int64_t kMostOut = 192;

bool turned_off() {
  static const bool off = [] {
    const char* set = std::getenv("REELGRAD_CONV");
    const std::string_view choice = set == nullptr || *set == '\0' ? "own" : set;
    if (choice != "own" && choice != "aten" && choice != "cudnn")
      fail_usage("REELGRAD_CONV: unknown \"" + std::string(choice) + "\" (known: own, aten, cudnn)");
    return choice != "own";
  }();
  return off;
}

torch::ScalarType compute_type(const torch::Tensor& input) {
  return at::autocast::is_autocast_enabled(at::kCUDA) ? at::autocast::get_autocast_dtype(at::kCUDA)
                                                      : input.scalar_type();
}

bool differentiated(const torch::Tensor& input, std::span<const ConvLayer> layers) {
  if (!torch::GradMode::is_enabled()) return false;
  const auto wanted = [](const torch::Tensor& t) { return t.defined() && t.requires_grad(); };
  return wanted(input) || std::ranges::any_of(layers, [&](const ConvLayer& layer) {
           return wanted(layer.weight) || wanted(layer.bias) || wanted(layer.slope);
         });
}

bool is_vector(const torch::Tensor& t, std::int64_t size, torch::Device device) {
  return !t.defined() || (t.device() == device && t.is_floating_point() && t.scalar_type() != torch::kDouble &&
                          t.dim() == 1 && (t.size(0) == size || t.size(0) == 1) && t.is_contiguous());
}

bool takes_layer(const ConvLayer& layer, std::int64_t in, torch::Device device, bool last, bool gradients) {
  const torch::Tensor& w = layer.weight;
  const std::int64_t out = w.size(0);
  const bool by_pixels = last && out % kUnit != 0;  // the kernel of few output channels
  if (w.device() != device || !w.is_floating_point() || w.scalar_type() == torch::kDouble) return false;
  if (w.dim() != 4 || w.size(1) != in || w.size(2) != 3 || w.size(3) != 3) return false;
  if (in > (gradients || by_pixels ? kConvBlock : kConvMostIn) || out > (gradients ? kConvBlock : kMostOut))
    return false;
  if (!is_vector(layer.bias, out, device) || !is_vector(layer.slope, out, device)) return false;
  if (layer.bias.defined() && layer.bias.size(0) != out) return false;
  return out % kUnit == 0 || (by_pixels && layer.activation == Activation::none && out <= kOwnConvMostShuffled);
}

// The picture's part of the end: each of its pixels went to scale² of the result.
torch::Tensor summed_squares(const torch::Tensor& dy, int scale) {
  return dy.unflatten(3, {dy.size(3) / scale, scale}).unflatten(2, {dy.size(2) / scale, scale}).sum({3, 5});
}

// The tensors of a row that are there, as an autograd function takes them: input, picture, and of each layer weight,
// bias and slope.
struct Arguments {
  torch::Tensor input, picture;
  Tensors parameters;  // three a layer, undefined where there is none

  Tensors list() const {
    Tensors all{input};
    if (picture.defined()) all.push_back(picture);
    std::ranges::copy_if(parameters, std::back_inserter(all), [](const torch::Tensor& t) { return t.defined(); });
    return all;
  }

  static Arguments of(const Row& row, at::TensorList all) {
    auto next = all.begin();
    const auto take = [&](bool there) { return there ? *next++ : torch::Tensor(); };
    Arguments arguments;
    arguments.input = take(true);
    arguments.picture = take(row.scale > 0);
    for (const Row::Layer& layer : row.layers) {
      for (const bool there : {true, layer.has_bias, layer.has_slope}) arguments.parameters.push_back(take(there));
    }
    return arguments;
  }
};

class OwnConv : public torch::autograd::Function<OwnConv> {
 public:
  // `tensors`: the list of Arguments.
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const RowPtr& row, at::TensorList tensors) {
    const Arguments arguments = Arguments::of(*row, tensors);
    Forward forward(*row, arguments.parameters);
    torch::Tensor y = forward.run(arguments.input, arguments.picture);
    Tensors saved = forward.take_kept().list();
    context->saved_data["kept"] = static_cast<std::int64_t>(saved.size());
    context->saved_data["row"] = c10::IValue::make_capsule(row);
    saved.insert(saved.end(), tensors.begin(), tensors.end());
    context->save_for_backward(std::move(saved));
    return y;
  }

  static Tensors backward(torch::autograd::AutogradContext* context, Tensors outputs) {
    if (torch::GradMode::is_enabled())
      fail("the fused convolutions have no second derivatives: set REELGRAD_CONV=aten");
    const torch::Tensor& dy = outputs.front();
    const c10::cuda::CUDAGuard guard(dy.device());
    const auto row = c10::static_intrusive_pointer_cast<Row>(context->saved_data["row"].toCapsule());
    const Tensors saved = context->get_saved_variables();
    const auto tensors = saved.begin() + context->saved_data["kept"].toInt();
    const Kept kept = Kept::of(Tensors(saved.begin(), tensors));
    const Tensors inputs(tensors, saved.end());
    const Arguments arguments = Arguments::of(*row, inputs);
    const bool of_input = arguments.input.requires_grad();
    const bool of_picture = arguments.picture.defined() && arguments.picture.requires_grad();

    Arguments found;
    found.parameters = Backward(*row, kept).run(dy, arguments.parameters, of_input);
    const torch::Tensor of_rows_input = found.parameters.front();
    found.parameters.erase(found.parameters.begin());
    // One for each argument of forward(), the row itself included.
    Tensors results{torch::Tensor(), of_input ? of_rows_input.to(arguments.input.scalar_type()) : torch::Tensor()};
    if (arguments.picture.defined())
      results.push_back(of_picture ? summed_squares(dy, row->scale).to(arguments.picture.scalar_type())
                                   : torch::Tensor());
    for (std::size_t i = 0; i < arguments.parameters.size(); ++i) {
      const torch::Tensor& parameter = arguments.parameters[i];
      if (!parameter.defined()) continue;
      results.push_back(parameter.requires_grad() ? found.parameters[i].to(parameter.scalar_type()) : torch::Tensor());
    }
    return results;
  }
};

}  // namespace
}  // namespace own

bool own_conv_takes(const torch::Tensor& input, std::span<const ConvLayer> layers) {
  using namespace own;
  if (!input.is_cuda() || turned_off() || input.dim() != 4 || input.numel() == 0 || layers.empty()) return false;
  const torch::ScalarType type = compute_type(input);
  if (type != torch::kHalf && type != torch::kBFloat16) return false;
  if (!input.is_floating_point() || input.scalar_type() == torch::kDouble) return false;
  const cudaDeviceProp* properties = at::cuda::getDeviceProperties(input.device().index());
  if (properties->major != 9 || properties->minor != 0) return false;
  const bool gradients = differentiated(input, layers);
  std::int64_t in = input.size(1);
  for (const ConvLayer& layer : layers) {
    if (!takes_layer(layer, in, input.device(), &layer == &layers.back(), gradients)) return false;
    in = layer.weight.size(0);
  }
  return true;
}

torch::Tensor own_conv(const torch::Tensor& input, std::span<const ConvLayer> layers, const OwnConvEnd& end) {
  using namespace own;
  auto row = c10::make_intrusive<Row>();
  row->type = compute_type(input);
  row->scale = end.picture.defined() ? end.scale : 0;
  row->gradients = differentiated(input, layers) ||
                   (torch::GradMode::is_enabled() && end.picture.defined() && end.picture.requires_grad());
  Arguments arguments{input, end.picture, {}};
  for (const ConvLayer& layer : layers) {
    row->layers.push_back(layer_of(layer));
    const bool taps_in_order = layer.weight.stride(2) == 3 * layer.weight.stride(3);
    arguments.parameters.insert(arguments.parameters.end(),
                                {taps_in_order ? layer.weight : layer.weight.contiguous(), layer.bias, layer.slope});
  }
  if (row->gradients) return OwnConv::apply(row, at::TensorList(arguments.list()));
  return Forward(*row, arguments.parameters).run(input, end.picture);
}

}  // namespace reelgrad
