#include "reelgrad/nn/conv_act.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/record_function.h>

#include <algorithm>

#include "reelgrad/base/error.h"
#include "reelgrad/kernels/prelu.h"
#include "reelgrad/nn/architecture_tools.h"
#include "reelgrad/nn/own_conv.h"

namespace reelgrad {
namespace {

// v > 0 ? v : slope * v, in place of `z`, whose channels lie together.
void apply_slopes(const torch::Tensor& z, const torch::Tensor& slope) {
  const std::int64_t channels = z.size(1), pixels = z.numel() / channels;
  const torch::Tensor slopes = slope.expand({channels}).contiguous();
  const std::span by(slopes.const_data_ptr<float>(), static_cast<std::size_t>(channels));
  auto* const values = z.mutable_data_ptr<float>();
  constexpr std::int64_t kPixelsAtOnce = 1024;
  at::parallel_for(0, pixels, kPixelsAtOnce, [&](std::int64_t begin, std::int64_t end) {
    cpu::prelu(values + begin * channels, end - begin, by);
  });
}

// Without gradients, the result of a convolution of float32 on the CPU: fresh memory for what follows it takes longer
// than the multiplications do. Not while somebody listens to torch's operations (recording.h), who would not hear of
// it.
bool may_apply_slopes(const torch::Tensor& z, const torch::Tensor& slope) {
  return !at::GradMode::is_enabled() && z.is_cpu() && z.scalar_type() == torch::kFloat &&
         slope.scalar_type() == torch::kFloat && z.numel() > 0 && z.is_contiguous(torch::MemoryFormat::ChannelsLast) &&
         !at::hasThreadLocalCallbacks();
}

// In the memory of `z`, which nothing else reads: one tensor less for the backward pass. As above, not while somebody
// listens.
torch::Tensor rectified(torch::Tensor z, double slope) {
  if (at::hasThreadLocalCallbacks()) return slope == 0 ? at::relu(z) : at::leaky_relu(z, slope);
  return slope == 0 ? at::relu_(z) : at::leaky_relu_(z, slope);
}

torch::Tensor activated(const torch::Tensor& z, const ConvLayer& layer) {
  switch (layer.activation) {
    case Activation::none:
      return z;
    case Activation::prelu:
      if (!may_apply_slopes(z, layer.slope)) return at::prelu(z, layer.slope);
      apply_slopes(z, layer.slope);
      return z;
    case Activation::relu:
      return rectified(z, 0);
    case Activation::leaky_relu:
      return rectified(z, 0.1);
    case Activation::leaky_relu_02:
      return rectified(z, 0.2);
    case Activation::silu:
      return at::silu(z);
    case Activation::mish:
      return at::mish(z);
    case Activation::gelu:
      return at::gelu(z);
    case Activation::sigmoid:
      return at::sigmoid(z);
  }
  fail("unknown activation");
}

torch::Tensor by_torch(const torch::Tensor& x, const ConvLayer& layer) {
  return activated(at::conv2d(x, layer.weight, layer.bias, /*stride=*/1, /*padding=*/1), layer);
}

// Gradients of a row and of its layers differ in their last bits. Deterministic training promises the same whether
// layers are run again (checkpointing) or not, so there a row is its layers.
bool one_by_one() {
  return at::globalContext().deterministicAlgorithms();
}

// Of the first layers, which our kernels take as one; 0: torch's turn.
std::size_t taken_together(const torch::Tensor& x, std::span<const ConvLayer> layers) {
  return own_conv_takes(x, one_by_one() ? layers.first(1) : layers);
}

}  // namespace

torch::Tensor conv3x3_act(const torch::Tensor& input, const torch::Tensor& weight, const torch::Tensor& bias,
                          Activation activation, const torch::Tensor& slope) {
  const ConvLayer layer{weight, bias, activation, slope};
  return conv3x3_row(input, {&layer, 1});
}

torch::Tensor conv3x3_add(const torch::Tensor& input, const torch::Tensor& weight, const torch::Tensor& bias,
                          const torch::Tensor& residual, double factor) {
  const ConvLayer layer{weight, bias};
  const OwnConvEnd end{.residual = residual, .factor = factor};
  if (own_conv_takes(input, {&layer, 1}, end) == 1) return own_conv(input, {&layer, 1}, end);
  return at::add(residual, conv3x3_row(input, {&layer, 1}), factor);
}

torch::Tensor conv3x3_row(const torch::Tensor& input, std::span<const ConvLayer> layers) {
  torch::Tensor x = input;
  while (!layers.empty()) {
    const std::size_t ours = taken_together(x, layers);
    x = ours > 0 ? own_conv(x, layers.first(ours)) : by_torch(x, layers.front());
    layers = layers.subspan(std::max<std::size_t>(ours, 1));
  }
  return x;
}

torch::Tensor conv3x3_row_shuffled(const torch::Tensor& input, std::span<const ConvLayer> layers,
                                   const torch::Tensor& picture, int scale) {
  const OwnConvEnd end{.picture = picture, .scale = scale};
  const bool together = layers.size() == 1 || !one_by_one();
  if (together && own_conv_takes(input, layers, end) == layers.size()) return own_conv(input, layers, end);
  if (layers.size() > 1) {
    const torch::Tensor x = conv3x3_row(input, layers.first(layers.size() - 1));
    return conv3x3_row_shuffled(x, layers.last(1), picture, scale);
  }
  return at::pixel_shuffle(add_repeated(conv3x3_row(input, layers), picture), scale);
}

}  // namespace reelgrad
