#include "reelgrad/nn/large_conv.h"

#include <ATen/core/grad_mode.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "reelgrad/base/error.h"
#include "reelgrad/kernels/large_conv.h"
#include "reelgrad/nn/own_conv.h"
#include "reelgrad/nn/own_conv_row.h"

namespace reelgrad {
namespace large {
namespace {

using own::Tensors;

torch::Tensor by_torch(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias) {
  const std::int64_t seeing = weight.size(0), others = x.size(1) - seeing, side = weight.size(2);
  const torch::Tensor seen = at::conv2d(x.narrow(1, 0, seeing), weight, bias, /*stride=*/1, /*padding=*/side / 2);
  if (at::GradMode::is_enabled()) return at::cat({seen, x.narrow(1, seeing, others)}, 1);
  x.narrow(1, 0, seeing).copy_(seen);  // the others stay where they are
  return x;
}

LargeWeights weights_of(const torch::Tensor& weight, const torch::Tensor& bias) {
  return {.data = weight.const_data_ptr(),
          .element = own::element_of(weight.scalar_type()),
          .out_step = weight.stride(0),
          .in_step = weight.stride(1),
          .tap_step = weight.stride(3),
          .bias = own::vector_of(bias, 0)};
}

// For the way there, and, where it is wanted, for the way back.
Tensors packed(const torch::Tensor& x, const LargeWeights& weights, bool and_back) {
  const auto options = x.options().dtype(torch::kByte).memory_format(std::nullopt);
  Tensors tensors{at::empty({static_cast<std::int64_t>(kLargePackedBytes)}, options)};
  std::vector<LargePacking> packings{{weights, tensors.front().data_ptr()}};
  if (and_back) {
    tensors.push_back(at::empty_like(tensors.front()));
    packings.push_back({backward_weights(weights), tensors.back().data_ptr()});
  }
  cuda::pack_large_weights(own::element_of(x.scalar_type()), packings, own::stream());
  return tensors;
}

torch::Tensor convolved(const torch::Tensor& x, const torch::Tensor& packed) {
  torch::Tensor y = own::new_picture(x, x.size(1), x.scalar_type());
  cuda::large_conv({.element = own::element_of(x.scalar_type()),
                    .x = own::picture_of(x),
                    .packed = packed.const_data_ptr(),
                    .y = own::picture_of(y)},
                   own::stream());
  return y;
}

// In float32, laid out as they are.
struct Gradients {
  torch::Tensor weight, bias;
};

Gradients gradients_of(const torch::Tensor& x, const torch::Tensor& dy, const torch::Tensor& weight,
                       const torch::Tensor& bias) {
  Gradients gradients{at::empty_like(weight, weight.options().dtype(torch::kFloat)),
                      at::empty_like(bias, bias.options().dtype(torch::kFloat))};
  const torch::Tensor workspace = at::empty({static_cast<std::int64_t>(cuda::large_gradient_bytes())},
                                            x.options().dtype(torch::kByte).memory_format(std::nullopt));
  cuda::large_gradients(own::element_of(x.scalar_type()),
                        {.x = own::picture_of(x),
                         .dy = own::picture_of(dy),
                         .weight = gradients.weight.mutable_data_ptr<float>(),
                         .out_step = gradients.weight.stride(0),
                         .in_step = gradients.weight.stride(1),
                         .tap_step = gradients.weight.stride(3),
                         .bias = gradients.bias.mutable_data_ptr<float>()},
                        workspace.data_ptr(), own::stream());
  return gradients;
}

class OwnLargeConv : public torch::autograd::Function<OwnLargeConv> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& input,
                               const torch::Tensor& weight, const torch::Tensor& bias) {
    const torch::Tensor x = own::as_picture(input, input.scalar_type());
    const Tensors ways = packed(x, weights_of(weight, bias), /*and_back=*/true);
    context->save_for_backward({x, weight, bias, ways.back()});
    return convolved(x, ways.front());
  }

  static Tensors backward(torch::autograd::AutogradContext* context, Tensors outputs) {
    if (torch::GradMode::is_enabled())
      fail("the kernels for large convolutions have no second derivatives: set REELGRAD_CONV=aten");
    const Tensors saved = context->get_saved_variables();
    const torch::Tensor &x = saved[0], &weight = saved[1], &bias = saved[2], &way_back = saved[3];
    const c10::cuda::CUDAGuard guard(x.device());
    const torch::Tensor dy = own::as_picture(outputs.front(), x.scalar_type());
    Tensors results(3);
    if (context->needs_input_grad(0)) results[0] = convolved(dy, way_back);
    if (!context->needs_input_grad(1) && !context->needs_input_grad(2)) return results;
    const Gradients gradients = gradients_of(x, dy, weight, bias);
    if (context->needs_input_grad(1)) results[1] = gradients.weight.to(weight.scalar_type());
    if (context->needs_input_grad(2)) results[2] = gradients.bias.to(bias.scalar_type());
    return results;
  }
};

bool takes_parameter(const torch::Tensor& t, const torch::Tensor& input, at::IntArrayRef size) {
  return t.defined() && t.device() == input.device() && own::element_is_known(t.scalar_type()) && t.sizes() == size;
}

// So that one step leads from tap to tap.
torch::Tensor with_taps_in_order(const torch::Tensor& weight) {
  return weight.stride(2) == kLargeSide * weight.stride(3) ? weight : weight.contiguous();
}

}  // namespace
}  // namespace large

bool own_large_conv_takes(const torch::Tensor& input, const torch::Tensor& weight, const torch::Tensor& bias) {
  if (!input.is_cuda() || input.dim() != 4 || input.numel() == 0) return false;
  const torch::ScalarType type = input.scalar_type();
  if ((type != torch::kHalf && type != torch::kBFloat16) || own::compute_type(input) != type) return false;
  const std::int64_t channels = input.size(1);
  if (channels < kLargeChannels || channels > kLargeMostChannels || channels % kConvUnit != 0) return false;
  return large::takes_parameter(weight, input, {kLargeChannels, kLargeChannels, kLargeSide, kLargeSide}) &&
         large::takes_parameter(bias, input, {kLargeChannels}) && bias.is_contiguous() && !torch_convolves() &&
         cuda::warp::has_conv(input.device().index());
}

torch::Tensor large_conv(const torch::Tensor& input, const torch::Tensor& weight, const torch::Tensor& bias) {
  if (!own_large_conv_takes(input, weight, bias)) return large::by_torch(input, weight, bias);
  const c10::cuda::CUDAGuard guard(input.device());
  const torch::Tensor taps = large::with_taps_in_order(weight);
  const auto wanted = [](const torch::Tensor& t) { return t.requires_grad(); };
  if (at::GradMode::is_enabled() && (wanted(input) || wanted(weight) || wanted(bias)))
    return large::OwnLargeConv::apply(input, taps, bias);
  const torch::Tensor x = own::as_picture(input, input.scalar_type());
  return large::convolved(x, large::packed(x, large::weights_of(taps, bias), /*and_back=*/false).front());
}

}  // namespace reelgrad
