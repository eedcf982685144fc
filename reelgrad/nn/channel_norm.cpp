#include "reelgrad/nn/channel_norm.h"

#include <ATen/core/grad_mode.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "reelgrad/base/error.h"
#include "reelgrad/kernels/channel_norm.h"
#include "reelgrad/nn/own_conv.h"
#include "reelgrad/nn/own_conv_row.h"

namespace reelgrad {
namespace norming {
namespace {

using own::Tensors;

torch::Tensor by_torch(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, double epsilon) {
  const auto per_channel = [&](const torch::Tensor& values) { return values.to(x.scalar_type()).view({1, -1, 1, 1}); };
  const auto [variance, mean] = at::var_mean(x, {1}, /*unbiased=*/false, /*keepdim=*/true);
  const torch::Tensor even = (x - mean) * (variance + epsilon).rsqrt();
  return at::addcmul(per_channel(bias), even, per_channel(weight));
}

// [N, C, H, W] pixel after pixel, as the kernels take it.
torch::Tensor dense(const torch::Tensor& t) {
  constexpr std::uintptr_t kAlignment = 16;
  const torch::Tensor laid_out = t.contiguous(torch::MemoryFormat::ChannelsLast);
  const bool aligned = reinterpret_cast<std::uintptr_t>(laid_out.const_data_ptr()) % kAlignment == 0;
  return aligned ? laid_out : laid_out.clone(torch::MemoryFormat::ChannelsLast);
}

Pixels pixels_of(const torch::Tensor& t) {
  if (!t.defined()) return {};
  return {const_cast<void*>(t.const_data_ptr()), t.numel() / t.size(1), static_cast<int>(t.size(1))};
}

torch::Tensor normed(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, double epsilon) {
  torch::Tensor y = at::empty_like(x, torch::MemoryFormat::ChannelsLast);
  cuda::channel_norm({.element = own::element_of(x.scalar_type()),
                      .x = pixels_of(x),
                      .y = pixels_of(y),
                      .weight = own::vector_of(weight, 1),
                      .bias = own::vector_of(bias, 0),
                      .epsilon = static_cast<float>(epsilon)},
                     own::stream());
  return y;
}

class OwnChannelNorm : public torch::autograd::Function<OwnChannelNorm> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& input,
                               const torch::Tensor& weight, const torch::Tensor& bias, double epsilon) {
    const torch::Tensor x = dense(input);
    context->save_for_backward({x, weight, bias});
    context->saved_data["epsilon"] = epsilon;
    return normed(x, weight, bias, epsilon);
  }

  static Tensors backward(torch::autograd::AutogradContext* context, Tensors outputs) {
    if (torch::GradMode::is_enabled())
      fail("the kernels for layer norms have no second derivatives: set REELGRAD_CONV=aten");
    const Tensors saved = context->get_saved_variables();
    const torch::Tensor &x = saved[0], &weight = saved[1], &bias = saved[2];
    const c10::cuda::CUDAGuard guard(x.device());
    const torch::Tensor dy = dense(outputs.front().to(x.scalar_type()));
    const auto options = weight.options().dtype(torch::kFloat);
    const auto wanted = [&](std::size_t input) { return context->needs_input_grad(input); };
    torch::Tensor dx = wanted(0) ? at::empty_like(x, torch::MemoryFormat::ChannelsLast) : torch::Tensor();
    torch::Tensor of_weight = wanted(1) ? at::empty(weight.sizes(), options) : torch::Tensor();
    torch::Tensor of_bias = wanted(2) ? at::empty(bias.sizes(), options) : torch::Tensor();
    const torch::Tensor workspace =
        at::empty({static_cast<std::int64_t>(cuda::channel_norm_bytes(static_cast<int>(x.size(1))))},
                  x.options().dtype(torch::kByte).memory_format(std::nullopt));
    const auto floats = [](torch::Tensor& t) { return t.defined() ? t.mutable_data_ptr<float>() : nullptr; };
    cuda::channel_norm_backward({.element = own::element_of(x.scalar_type()),
                                 .x = pixels_of(x),
                                 .dy = pixels_of(dy),
                                 .dx = pixels_of(dx),
                                 .weight = own::vector_of(weight, 1),
                                 .epsilon = static_cast<float>(context->saved_data["epsilon"].toDouble()),
                                 .of_weight = floats(of_weight),
                                 .of_bias = floats(of_bias)},
                                workspace.data_ptr(), own::stream());
    const auto in_type = [](const torch::Tensor& gradient, const torch::Tensor& of) {
      return gradient.defined() ? gradient.to(of.scalar_type()) : gradient;
    };
    return {dx, in_type(of_weight, weight), in_type(of_bias, bias), torch::Tensor()};
  }
};

bool takes_vector(const torch::Tensor& t, const torch::Tensor& x) {
  return t.device() == x.device() && own::element_is_known(t.scalar_type()) && t.dim() == 1 && t.size(0) == x.size(1) &&
         t.is_contiguous();
}

}  // namespace
}  // namespace norming

bool own_channel_norm_takes(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias) {
  if (!x.is_cuda() || x.dim() != 4 || x.numel() == 0) return false;
  if (x.scalar_type() != torch::kHalf && x.scalar_type() != torch::kBFloat16) return false;
  if (x.size(1) % kConvUnit != 0 || x.size(1) > kChannelNormMost) return false;
  return norming::takes_vector(weight, x) && norming::takes_vector(bias, x) && !torch_convolves() &&
         cuda::warp::has_conv(x.device().index());
}

torch::Tensor channel_norm(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                           double epsilon) {
  if (!own_channel_norm_takes(x, weight, bias)) return norming::by_torch(x, weight, bias, epsilon);
  const c10::cuda::CUDAGuard guard(x.device());
  const auto wanted = [](const torch::Tensor& t) { return t.requires_grad(); };
  if (at::GradMode::is_enabled() && (wanted(x) || wanted(weight) || wanted(bias)))
    return norming::OwnChannelNorm::apply(x, weight, bias, epsilon);
  return norming::normed(norming::dense(x), weight, bias, epsilon);
}

}  // namespace reelgrad
