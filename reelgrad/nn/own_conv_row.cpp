#include "reelgrad/nn/own_conv_row.h"

#include <ATen/cuda/CUDAContext.h>

namespace reelgrad::own {

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
    case Activation::sigmoid:
      set(ConvActivation::sigmoid, true);
      break;
  }
  return known;
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
