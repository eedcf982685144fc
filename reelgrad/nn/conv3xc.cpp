#include "reelgrad/nn/conv3xc.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "reelgrad/base/error.h"
#include "reelgrad/nn/architecture_tools.h"
#include "reelgrad/nn/initialisation.h"

namespace reelgrad {
namespace {

constexpr int kGain = 2;  // how much wider the layers between are

Conv3xcImpl::Convolution merge_in_float64(const Conv3xcImpl::Parts& parts) {
  const auto wide = [](const Conv3xcImpl::Convolution& conv) {
    return Conv3xcImpl::Convolution{conv.weight.to(torch::kFloat64), conv.bias.to(torch::kFloat64)};
  };
  return Conv3xcImpl::merge({wide(parts.first), wide(parts.middle), wide(parts.last), wide(parts.beside)});
}

torch::Tensor& tensor_at(NamedTensors& state, const std::string& key) {
  const auto found = std::ranges::find(state, key, &NamedTensors::value_type::first);
  if (found == state.end()) fail(fmt::format("a state has no tensor {}", key));
  return found->second;
}

}  // namespace

// One 3×3 convolution, as nothing between the parts bends; at the picture's border too, since the first of them sees
// the zeros around it.
Conv3xcImpl::Convolution Conv3xcImpl::merge(const Parts& parts) {
  const c10::impl::ExcludeDispatchKeyGuard in_full_precision(c10::autocast_dispatch_keyset);
  const torch::Tensor &middle = parts.middle.weight, &beside = parts.beside.weight;
  const torch::Tensor first = parts.first.weight.flatten(1), last = parts.last.weight.flatten(1);
  const std::int64_t out = beside.size(0), in = beside.size(1), wide = middle.size(1);
  // The last on the middle one: [out, 9, wide].
  const torch::Tensor two = last.matmul(middle.flatten(1)).view({out, wide, 9}).transpose(1, 2);
  const torch::Tensor three = two.reshape({out * 9, wide}).matmul(first).view({out, 9, in}).transpose(1, 2);
  const torch::Tensor bias = two.sum(1).mv(parts.first.bias) + last.mv(parts.middle.bias);
  return {three.reshape({out, in, 3, 3}) + at::constant_pad_nd(beside, {1, 1, 1, 1}),
          bias + parts.last.bias + parts.beside.bias};
}

Conv3xcImpl::Conv3xcImpl(int in, int out)
    : parts_{.first = trained("conv.0", in, in * kGain, 1),
             .middle = trained("conv.1", in * kGain, out * kGain, 3),
             .last = trained("conv.2", out * kGain, out, 1),
             .beside = trained("sk", in, out, 1)} {
  const auto merged = register_module("eval_conv", std::make_shared<torch::nn::Module>("eval_conv"));
  merged_.weight = merged->register_buffer("weight", torch::zeros({out, in, 3, 3}));
  merged_.bias = merged->register_buffer("bias", torch::zeros({out}));
  if (!initialisation_is_skipped()) refresh();
}

Conv3xcImpl::Convolution Conv3xcImpl::trained(const std::string& key, int in, int out, int kernel) {
  const torch::nn::Conv2d conv(torch::nn::Conv2dOptions(in, out, kernel));
  register_at(*this, key, conv.ptr());
  return {conv->weight, conv->bias};
}

torch::Tensor Conv3xcImpl::forward(const torch::Tensor& x, Activation activation) {
  const Convolution conv = is_training() ? merge(parts_) : merged_;
  return conv3x3_act(x, conv.weight, conv.bias, activation);
}

void Conv3xcImpl::refresh() {
  const torch::NoGradGuard no_grad;
  const Convolution merged = merge_in_float64(parts_);
  merged_.weight.copy_(merged.weight);
  merged_.bias.copy_(merged.bias);
}

void refresh_conv3xc(torch::nn::Module& network) {
  for (const auto& module : network.modules(/*include_self=*/false)) {
    if (auto* conv = module->as<Conv3xcImpl>()) conv->refresh();
  }
}

void derive_conv3xc(const torch::nn::Module& network, NamedTensors& state) {
  const torch::NoGradGuard no_grad;
  for (const auto& item : network.named_modules("", /*include_self=*/false)) {
    if (item.value()->as<Conv3xcImpl>() == nullptr) continue;
    const auto convolution = [&](const char* part) {
      const std::string key = item.key() + part;
      return Conv3xcImpl::Convolution{tensor_at(state, key + ".weight"), tensor_at(state, key + ".bias")};
    };
    const auto merged =
        merge_in_float64({convolution(".conv.0"), convolution(".conv.1"), convolution(".conv.2"), convolution(".sk")});
    for (const auto& [name, value] : {std::pair{"weight", merged.weight}, std::pair{"bias", merged.bias}}) {
      torch::Tensor& written = tensor_at(state, fmt::format("{}.eval_conv.{}", item.key(), name));
      written = value.to(written.scalar_type());
    }
  }
}

}  // namespace reelgrad
