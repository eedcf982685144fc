#include "reelgrad/nn/own_conv.h"

#include <ATen/autocast_mode.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <string_view>
#include <vector>

#include "reelgrad/base/error.h"
#include "reelgrad/kernels/conv.h"

namespace reelgrad {
namespace {

using Tensors = std::vector<torch::Tensor>;

constexpr std::int64_t kUnit = 8;           // channels that are moved together
constexpr std::int64_t kMostForward = 192;  // output channels
constexpr std::int64_t kMostBackward = kConvBlock;

std::int64_t rounded_up(std::int64_t n, std::int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

// --- What the kernels take ---

bool turned_off() {
  static const bool off = [] {
    const char* set = std::getenv("REELGRAD_CONV");
    const std::string_view choice = set == nullptr ? "own" : set;
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

bool is_vector(const torch::Tensor& t, std::int64_t size) {
  return !t.defined() || (t.is_cuda() && t.is_floating_point() && t.scalar_type() != torch::kDouble && t.dim() == 1 &&
                          (t.size(0) == size || t.size(0) == 1) && t.is_contiguous());
}

bool takes_layer(const ConvLayer& layer, std::int64_t in, bool last, bool gradients) {
  const torch::Tensor& w = layer.weight;
  const std::int64_t out = w.size(0), most = gradients ? kMostBackward : kMostForward;
  if (!w.is_cuda() || w.scalar_type() == torch::kDouble || w.size(1) != in || in > kConvMostIn || out > most)
    return false;
  if (w.size(2) != 3 || w.size(3) != 3 || !is_vector(layer.bias, out) || !is_vector(layer.slope, out)) return false;
  if (layer.bias.defined() && layer.bias.size(0) != out) return false;
  if (out % kUnit == 0) return true;
  return last && layer.activation == Activation::none && out <= kOwnConvMostShuffled;
}

// --- Tensors as the kernels see them ---

ElementType element_of(torch::ScalarType type) {
  return type == torch::kHalf ? ElementType::f16 : type == torch::kBFloat16 ? ElementType::bf16 : ElementType::f32;
}

ConvVector vector_of(const torch::Tensor& t, float otherwise) {
  if (!t.defined()) return {.otherwise = otherwise};
  return {t.const_data_ptr(), element_of(t.scalar_type()), static_cast<int>(t.size(0)), otherwise};
}

ConvTensor tensor_of(const torch::Tensor& t) {
  if (!t.defined()) return {};
  return {const_cast<void*>(t.const_data_ptr()),
          element_of(t.scalar_type()),
          t.stride(0),
          t.stride(1),
          t.stride(2),
          t.stride(3)};
}

// [N, C, H, W] whose channels lie together. Steps along sides of 1 are of no consequence, but the kernels want even
// those to be in order.
ConvPicture picture_of(const torch::Tensor& t) {
  if (!t.defined()) return {};
  ConvPicture picture{.data = const_cast<void*>(t.const_data_ptr()),
                      .batch = static_cast<int>(t.size(0)),
                      .height = static_cast<int>(t.size(2)),
                      .width = static_cast<int>(t.size(3)),
                      .channels = static_cast<int>(t.size(1))};
  picture.pixel_step = t.size(3) > 1 ? t.stride(3) : t.size(1);
  picture.row_step = t.size(2) > 1 ? t.stride(2) : picture.pixel_step * t.size(3);
  picture.image_step = t.size(0) > 1 ? t.stride(0) : picture.row_step * t.size(2);
  return picture;
}

bool is_picture(const torch::Tensor& t, torch::ScalarType type) {
  if (t.scalar_type() != type || t.size(1) % kUnit != 0 || t.stride(1) != 1) return false;
  const ConvPicture picture = picture_of(t);
  return picture.pixel_step % kUnit == 0 && picture.row_step % kUnit == 0 && picture.image_step % kUnit == 0 &&
         reinterpret_cast<std::uintptr_t>(picture.data) % (kUnit * 2) == 0;
}

torch::Tensor new_picture(const torch::Tensor& like, std::int64_t channels, torch::ScalarType type) {
  return at::empty({like.size(0), channels, like.size(2), like.size(3)},
                   like.options().dtype(type).memory_format(torch::MemoryFormat::ChannelsLast));
}

// --- A row, without its tensors ---

struct Row : torch::CustomClassHolder {
  struct Layer {
    int out = 0, in = 0;
    ConvActivation activation = ConvActivation::none;
    float slope = 0;              // where it has no tensor
    bool keeps_argument = false;  // of the activation: it cannot be told from the result
    bool has_bias = false, has_slope = false;
  };
  std::vector<Layer> layers;
  torch::ScalarType type = torch::kHalf;
  int scale = 0;  // of the shuffle at the end; 0: none
  bool gradients = false;

  ElementType element() const { return element_of(type); }
};

using RowPtr = c10::intrusive_ptr<Row>;

Row::Layer layer_of(const ConvLayer& layer) {
  Row::Layer known{.out = static_cast<int>(layer.weight.size(0)),
                   .in = static_cast<int>(layer.weight.size(1)),
                   .has_bias = layer.bias.defined(),
                   .has_slope = layer.slope.defined()};
  const auto set = [&](ConvActivation activation, bool keeps_argument, float slope = 0) {
    known.activation = activation;
    known.keeps_argument = keeps_argument;
    known.slope = slope;
  };
  switch (layer.activation) {
    case Activation::none:
      break;
    case Activation::prelu:
      set(ConvActivation::slope, true);
      break;
    case Activation::relu:
      set(ConvActivation::relu, false);
      break;
    case Activation::leaky_relu:
      set(ConvActivation::slope, false, 0.1F);
      break;
    case Activation::leaky_relu_02:
      set(ConvActivation::slope, false, 0.2F);
      break;
    case Activation::silu:
      set(ConvActivation::silu, true);
      break;
    case Activation::mish:
      set(ConvActivation::mish, true);
      break;
    case Activation::sigmoid:
      set(ConvActivation::sigmoid, true);
      break;
  }
  return known;
}

// The tensors of a layer, as they stand in a list of three a layer.
struct Parameters {
  torch::Tensor weight, bias, slope;
};

Parameters parameters_of(const Tensors& list, std::size_t layer) {
  return {list[3 * layer], list[3 * layer + 1], list[3 * layer + 2]};
}

ConvWeights weights_of(const Row::Layer& layer, const Parameters& p) {
  return {.weight = p.weight.const_data_ptr(),
          .element = element_of(p.weight.scalar_type()),
          .out = layer.out,
          .in = layer.in,
          .out_step = p.weight.stride(0),
          .in_step = p.weight.stride(1),
          .tap_step = p.weight.stride(3),
          .bias = vector_of(p.bias, 0),
          .slope = vector_of(p.slope, layer.slope)};
}

// What forward leaves to backward, in the order in which it is saved.
struct Kept {
  torch::Tensor input;  // as the kernels take it
  Tensors packed;       // per layer: the weights for the way back
  Tensors results;      // per layer: y; undefined for the last unless backward needs it
  Tensors arguments;    // per layer: what tells the activation's derivative
  Tensors slopes;       // per layer

  Tensors list() const {
    Tensors all{input};
    for (const Tensors* part : {&packed, &results, &arguments, &slopes})
      all.insert(all.end(), part->begin(), part->end());
    return all;
  }

  static Kept of(const Tensors& all) {
    const std::size_t layers = (all.size() - 1) / 4;
    const auto part = [&](std::size_t i) {
      const auto begin = all.begin() + 1 + static_cast<std::ptrdiff_t>(i * layers);
      return Tensors(begin, begin + static_cast<std::ptrdiff_t>(layers));
    };
    return {all.front(), part(0), part(1), part(2), part(3)};
  }
};

CUstream_st* stream() {
  return at::cuda::getCurrentCUDAStream().stream();
}

// --- Forward ---

class Forward {
 public:
  Forward(const Row& row, const Tensors& parameters) : row_(row), parameters_(parameters) {}

  torch::Tensor run(const torch::Tensor& input, const torch::Tensor& picture) {
    const c10::cuda::CUDAGuard guard(input.device());
    pack(input);
    torch::Tensor x = kept_.input = taken(input);
    for (std::size_t i = 0; i < row_.layers.size(); ++i) x = run_layer(i, x, picture);
    return x;
  }

  Kept take_kept() { return std::move(kept_); }

 private:
  bool shuffled(std::size_t i) const {
    return i + 1 == row_.layers.size() && (row_.scale > 0 || row_.layers[i].out % kUnit != 0);
  }

  torch::Tensor taken(const torch::Tensor& input) const {
    if (is_picture(input, row_.type)) return input;
    torch::Tensor x = new_picture(input, rounded_up(input.size(1), kUnit), row_.type);
    cuda::take_channels(tensor_of(input), static_cast<int>(input.size(1)), 1, row_.element(), picture_of(x), stream());
    return x;
  }

  // All of them in as few launches as possible, each in memory of its own.
  void pack(const torch::Tensor& like) {
    std::vector<ConvPacking> packings;
    const auto add = [&](const ConvWeights& weights, int block) {
      torch::Tensor packed = at::empty({static_cast<std::int64_t>(packed_bytes(weights.out, block))},
                                       like.options().dtype(torch::kByte).memory_format(std::nullopt));
      packings.push_back({weights, block, packed.data_ptr()});
      return packed;
    };
    ConvVector below{};
    for (std::size_t i = 0; i < row_.layers.size(); ++i) {
      const Row::Layer& layer = row_.layers[i];
      const ConvWeights weights = weights_of(layer, parameters_of(parameters_, i));
      packed_.push_back(add(weights, shuffled(i) ? conv_block_of_shuffled(layer.out) : kConvBlock));
      if (row_.gradients) kept_.packed.push_back(add(backward_weights(weights, below), kConvBlock));
      below = weights.slope;
    }
    for (std::size_t i = 0; i < packings.size(); i += kConvMostPackings) {
      const std::size_t count = std::min(kConvMostPackings, packings.size() - i);
      cuda::pack_weights(row_.element(), std::span(packings).subspan(i, count), stream());
    }
  }

  torch::Tensor run_layer(std::size_t i, const torch::Tensor& x, const torch::Tensor& picture) {
    const Row::Layer& layer = row_.layers[i];
    const bool last = i + 1 == row_.layers.size();
    if (shuffled(i)) {
      keep({}, {}, i);
      return run_shuffled(i, x, picture);
    }
    torch::Tensor y = new_picture(x, layer.out, row_.type);
    torch::Tensor z = row_.gradients && layer.keeps_argument ? at::empty_like(y) : torch::Tensor();
    cuda::conv3x3({.element = row_.element(),
                   .x = picture_of(x),
                   .packed = packed_[i].const_data_ptr(),
                   .activation = layer.activation,
                   .y = picture_of(y),
                   .z = picture_of(z)},
                  stream());
    const bool told_by_result = layer.activation != ConvActivation::none && !layer.keeps_argument;
    keep(last ? torch::Tensor() : y, told_by_result ? y : z, i);
    return y;
  }

  torch::Tensor run_shuffled(std::size_t i, const torch::Tensor& x, const torch::Tensor& picture) const {
    const int out = row_.layers[i].out, scale = std::max(row_.scale, 1);
    const bool ends = row_.scale > 0;
    torch::Tensor y =
        ends ? at::empty({x.size(0), out / (scale * scale), x.size(2) * scale, x.size(3) * scale},
                         x.options().dtype(at::result_type(x, picture)).memory_format(torch::MemoryFormat::Contiguous))
             : new_picture(x, out, row_.type);
    cuda::conv3x3_shuffled({.element = row_.element(),
                            .x = picture_of(x),
                            .packed = packed_[i].const_data_ptr(),
                            .out = out,
                            .scale = scale,
                            .skip = tensor_of(picture),
                            .y = tensor_of(y)},
                           stream());
    return y;
  }

  void keep(torch::Tensor result, torch::Tensor argument, std::size_t i) {
    if (!row_.gradients) return;
    kept_.results.push_back(std::move(result));
    kept_.arguments.push_back(std::move(argument));
    kept_.slopes.push_back(parameters_of(parameters_, i).slope);
  }

  const Row& row_;
  const Tensors& parameters_;
  Tensors packed_;
  Kept kept_;
};

// --- Backward ---

class Backward {
 public:
  Backward(const Row& row, const Kept& kept) : row_(row), kept_(kept) {}

  // Gradients of the input (where wanted) and of each layer's weight, bias and slope (float32), in this order.
  Tensors run(const torch::Tensor& dy, const Tensors& parameters, bool of_input) {
    const std::size_t layers = row_.layers.size();
    gradients_.resize(layers);
    torch::Tensor dz = enter(dy);
    for (std::size_t i = layers; i-- > 0;) {
      gradients_[i] = dz;
      if (i > 0) dz = through(i, dz);
    }
    Tensors results{of_input ? input_gradient(dz) : torch::Tensor()};
    add_weights(parameters, results);
    return results;
  }

 private:
  torch::Tensor new_sums(int rows) {
    return sums_.emplace_back(
        at::empty({rows, kConvSumRow}, kept_.input.options().dtype(torch::kFloat).memory_format(std::nullopt)));
  }

  // What the last activation took.
  torch::Tensor enter(const torch::Tensor& dy) {
    const std::size_t last = row_.layers.size() - 1;
    const Row::Layer& layer = row_.layers[last];
    torch::Tensor dz = new_picture(kept_.input, rounded_up(layer.out, kUnit), row_.type);
    cuda::conv_top_gradient({.element = row_.element(),
                             .dy = tensor_of(dy),
                             .channels = layer.out,
                             .scale = std::max(row_.scale, 1),
                             .activation = layer.activation,
                             .slope = vector_of(kept_.slopes[last], layer.slope),
                             .z = picture_of(kept_.arguments[last]),
                             .dz = picture_of(dz),
                             .sums = new_sums(kConvTopSumRows).mutable_data_ptr<float>()},
                            stream());
    return dz;
  }

  // From what layer i's convolution gave to what the activation of the one below took.
  torch::Tensor through(std::size_t i, const torch::Tensor& dz) {
    const Row::Layer& below = row_.layers[i - 1];
    torch::Tensor dz_below = new_picture(kept_.input, below.out, row_.type);
    const ConvPicture picture = picture_of(dz);
    cuda::conv3x3_backward({.element = row_.element(),
                            .dz = picture,
                            .packed = kept_.packed[i].const_data_ptr(),
                            .activation = below.activation,
                            .z_below = picture_of(kept_.arguments[i - 1]),
                            .dz_below = picture_of(dz_below),
                            .sums = new_sums(cuda::conv_sum_rows(picture)).mutable_data_ptr<float>()},
                           stream());
    return dz_below;
  }

  torch::Tensor input_gradient(const torch::Tensor& dz) const {
    torch::Tensor dx = new_picture(kept_.input, rounded_up(row_.layers.front().in, kUnit), row_.type);
    cuda::conv3x3_backward({.element = row_.element(),
                            .dz = picture_of(dz),
                            .packed = kept_.packed.front().const_data_ptr(),
                            .dz_below = picture_of(dx)},
                           stream());
    return dx.narrow(1, 0, row_.layers.front().in);
  }

  void add_weights(const Tensors& parameters, Tensors& results) {
    std::vector<ConvWeightGradient> weights;
    std::vector<ConvSums> sums;
    for (std::size_t i = 0; i < row_.layers.size(); ++i) {
      const Row::Layer& layer = row_.layers[i];
      const Parameters p = parameters_of(parameters, i);
      const auto empty_like = [](const torch::Tensor& t) {
        return t.defined() ? at::empty_like(t, t.options().dtype(torch::kFloat)) : torch::Tensor();
      };
      const Parameters g{empty_like(p.weight), empty_like(p.bias), empty_like(p.slope)};
      weights.push_back({.x = picture_of(i == 0 ? kept_.input : kept_.results[i - 1]),
                         .dz = picture_of(gradients_[i]),
                         .out = layer.out,
                         .in = layer.in,
                         .gradient = g.weight.mutable_data_ptr<float>(),
                         .out_step = g.weight.stride(0),
                         .in_step = g.weight.stride(1),
                         .tap_step = g.weight.stride(3)});
      const torch::Tensor& rows = sums_[row_.layers.size() - 1 - i];  // they were made from the last layer down
      sums.push_back({.rows = rows.const_data_ptr<float>(),
                      .row_count = static_cast<int>(rows.size(0)),
                      .channels = layer.out,
                      .bias = p.bias.defined() ? g.bias.mutable_data_ptr<float>() : nullptr,
                      .slope = p.slope.defined() ? g.slope.mutable_data_ptr<float>() : nullptr,
                      .slopes = p.slope.defined() ? static_cast<int>(p.slope.size(0)) : 0});
      results.insert(results.end(), {g.weight, g.bias, g.slope});
    }
    const torch::Tensor workspace = at::empty(
        {static_cast<std::int64_t>(cuda::weight_gradient_bytes(std::min(weights.size(), kConvMostGradients)))},
        kept_.input.options().dtype(torch::kByte).memory_format(std::nullopt));
    for (std::size_t i = 0; i < weights.size(); i += kConvMostGradients) {
      const std::size_t count = std::min(kConvMostGradients, weights.size() - i);
      cuda::conv_weight_gradients(row_.element(), std::span(weights).subspan(i, count), workspace.data_ptr(), stream());
      cuda::conv_add_sums(std::span(sums).subspan(i, count), stream());
    }
  }

  const Row& row_;
  const Kept& kept_;
  Tensors gradients_;  // of what each convolution gave
  Tensors sums_;
};

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

bool own_conv_takes(const torch::Tensor& input, std::span<const ConvLayer> layers) {
  if (!input.is_cuda() || turned_off() || input.dim() != 4 || input.numel() == 0 || layers.empty()) return false;
  const torch::ScalarType type = compute_type(input);
  if (type != torch::kHalf && type != torch::kBFloat16) return false;
  if (!input.is_floating_point() || input.scalar_type() == torch::kDouble) return false;
  const cudaDeviceProp* properties = at::cuda::getDeviceProperties(input.device().index());
  if (properties->major != 9 || properties->minor != 0) return false;
  const bool gradients = differentiated(input, layers);
  std::int64_t in = input.size(1);
  for (const ConvLayer& layer : layers) {
    if (!takes_layer(layer, in, &layer == &layers.back(), gradients)) return false;
    in = layer.weight.size(0);
  }
  return true;
}

torch::Tensor own_conv(const torch::Tensor& input, std::span<const ConvLayer> layers, const OwnConvEnd& end) {
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
