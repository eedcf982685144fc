#include "reelgrad/nn/own_conv_row.h"

#include <ATen/autocast_mode.h>
#include <ATen/cuda/CUDAContext.h>

namespace reelgrad::own {

bool element_is_known(torch::ScalarType type) {
  return type == torch::kFloat || type == torch::kHalf || type == torch::kBFloat16;
}

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

// Steps along sides of 1 are of no consequence, but the kernels want even those to be in order.
ConvPicture picture_of(const torch::Tensor& t) {
  if (!t.defined()) return {};
  ConvPicture picture{.data = const_cast<void*>(t.const_data_ptr()),
                      .batch = static_cast<int>(t.size(0)),
                      .height = static_cast<int>(t.size(2)),
                      .width = static_cast<int>(t.size(3)),
                      .channels = static_cast<int>(t.size(1))};
  picture.pixel_step = t.size(3) > 1 ? t.stride(3) : rounded_up(t.size(1), kConvUnit);
  picture.row_step = t.size(2) > 1 ? t.stride(2) : picture.pixel_step * t.size(3);
  picture.image_step = t.size(0) > 1 ? t.stride(0) : picture.row_step * t.size(2);
  return picture;
}

ConvPicture padded_picture_of(const torch::Tensor& t) {
  ConvPicture picture = picture_of(t);
  picture.channels = static_cast<int>(rounded_up(picture.channels, kConvUnit));
  return picture;
}

// Steps grow from channels to images: an expanded tensor, which repeats pixels or rows, is none.
bool is_picture(const torch::Tensor& t, torch::ScalarType type) {
  if (t.scalar_type() != type || t.stride(1) != 1) return false;
  const ConvPicture picture = picture_of(t);
  const auto in_units = [](std::int64_t step) { return step % kConvUnit == 0; };
  return in_units(picture.pixel_step) && in_units(picture.row_step) && in_units(picture.image_step) &&
         picture.pixel_step >= picture.channels && picture.row_step >= picture.pixel_step * picture.width &&
         picture.image_step >= picture.row_step * picture.height &&
         reinterpret_cast<std::uintptr_t>(picture.data) % (kConvUnit * 2) == 0;
}

// A tensor of its own even where channels are left over: a view could not be changed in place by who gets it.
torch::Tensor new_picture(const torch::Tensor& like, std::int64_t channels, torch::ScalarType type) {
  const std::int64_t n = like.size(0), h = like.size(2), w = like.size(3), step = rounded_up(channels, kConvUnit);
  const auto options = like.options().dtype(type);
  if (step == channels) return at::empty({n, channels, h, w}, options.memory_format(torch::MemoryFormat::ChannelsLast));
  torch::Tensor t = at::empty({n * h * w * step}, options.memory_format(std::nullopt));
  return t.set_(t.storage(), 0, {n, channels, h, w}, {h * w * step, 1, w * step, step});
}

torch::Tensor as_picture(const torch::Tensor& t, torch::ScalarType type) {
  if (is_picture(t, type)) return t;
  torch::Tensor picture = new_picture(t, t.size(1), type);
  cuda::take_channels(tensor_of(t), static_cast<int>(t.size(1)), element_of(type), padded_picture_of(picture),
                      stream());
  return picture;
}

torch::ScalarType compute_type(const torch::Tensor& input) {
  return at::autocast::is_autocast_enabled(at::kCUDA) ? at::autocast::get_autocast_dtype(at::kCUDA)
                                                      : input.scalar_type();
}

CUstream_st* stream() {
  return at::cuda::getCurrentCUDAStream().stream();
}

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
    case Activation::gelu:
      set(ConvActivation::gelu, true);
      break;
    case Activation::sigmoid:
      set(ConvActivation::sigmoid, true);
      break;
  }
  return known;
}

void Row::convolve(const ConvForward& conv) const {
  (by_warps ? cuda::warp::conv3x3 : cuda::conv3x3)(conv, stream());
}

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

Tensors Kept::list() const {
  Tensors all{input};
  for (const Tensors* part : {&packed, &results, &arguments, &slopes})
    all.insert(all.end(), part->begin(), part->end());
  return all;
}

Kept Kept::of(const Tensors& all) {
  const std::size_t layers = (all.size() - 1) / 4;
  const auto part = [&](std::size_t i) {
    const auto begin = all.begin() + 1 + static_cast<std::ptrdiff_t>(i * layers);
    return Tensors(begin, begin + static_cast<std::ptrdiff_t>(layers));
  };
  return {all.front(), part(0), part(1), part(2), part(3)};
}

}  // namespace reelgrad::own
