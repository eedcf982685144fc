#include "reelgrad/nn/own_conv_forward.h"

#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <optional>
#include <span>

namespace reelgrad::own {

torch::Tensor Forward::run(const torch::Tensor& input, const torch::Tensor& added) {
  const c10::cuda::CUDAGuard guard(input.device());
  pack(input);
  torch::Tensor x = kept_.input = as_picture(input, row_.type);
  for (std::size_t i = 0; i < row_.layers.size(); ++i) x = run_layer(i, x, added);
  return x;
}

// By the kernel of few output channels.
bool Forward::shuffled(std::size_t i) const {
  if (row_.by_warps || i + 1 < row_.layers.size() || row_.end == Row::End::added) return false;
  if (row_.end == Row::End::shuffled) return true;
  const Row::Layer& layer = row_.layers[i];
  return layer.out % kConvUnit != 0 && layer.out <= kConvMostShuffled && layer.in <= kConvBlock &&
         layer.activation == ConvActivation::none;
}

// All of them in as few launches as possible, each in memory of its own.
void Forward::pack(const torch::Tensor& like) {
  std::vector<ConvPacking> packings;
  const auto add = [&](const ConvWeights& weights, int block) {
    torch::Tensor packed = at::empty({static_cast<std::int64_t>(packed_bytes(weights.out, weights.in, block))},
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

torch::Tensor Forward::run_layer(std::size_t i, const torch::Tensor& x, const torch::Tensor& added) {
  const Row::Layer& layer = row_.layers[i];
  const bool last = i + 1 == row_.layers.size();
  if (shuffled(i)) {
    keep({}, {}, i);
    return run_shuffled(i, x, added);
  }
  torch::Tensor y = new_picture(x, layer.out, row_.type);
  torch::Tensor z = row_.gradients && layer.keeps_argument ? new_picture(x, layer.out, row_.type) : torch::Tensor();
  const torch::Tensor residual = last && row_.end == Row::End::added ? as_picture(added, row_.type) : torch::Tensor();
  row_.convolve({.element = row_.element(),
                 .x = picture_of(x),
                 .packed = packed_[i].const_data_ptr(),
                 .activation = layer.activation,
                 .y = picture_of(y),
                 .z = picture_of(z),
                 .residual = picture_of(residual),
                 .factor = row_.factor});
  const bool told_by_result = layer.activation != ConvActivation::none && !layer.keeps_argument;
  keep(last ? torch::Tensor() : y, told_by_result ? y : z, i);
  return y;
}

torch::Tensor Forward::run_shuffled(std::size_t i, const torch::Tensor& x, const torch::Tensor& picture) const {
  const int out = row_.layers[i].out, scale = row_.scale;
  torch::Tensor y =
      picture.defined()
          ? at::empty({x.size(0), out / (scale * scale), x.size(2) * scale, x.size(3) * scale},
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

void Forward::keep(torch::Tensor result, torch::Tensor argument, std::size_t i) {
  if (!row_.gradients) return;
  kept_.results.push_back(std::move(result));
  kept_.arguments.push_back(std::move(argument));
  kept_.slopes.push_back(parameters_of(parameters_, i).slope);
}

}  // namespace reelgrad::own
