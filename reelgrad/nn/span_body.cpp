#include "reelgrad/nn/span_body.h"

#include <torch/torch.h>

#include "reelgrad/nn/architecture_tools.h"

namespace reelgrad {
namespace {

using Tensors = std::vector<torch::Tensor>;

}  // namespace

torch::Tensor weighed_by_itself(const torch::Tensor& y, const torch::Tensor& x) {
  return (y + x) * (y.sigmoid() - 0.5);
}

SpanBody::SpanBody(torch::nn::Module& network, std::vector<SpanBlock> blocks, int features, int channels, int scale)
    : blocks_(std::move(blocks)), scale_(scale) {
  join_ = network.register_module("conv_cat", same_conv(features * 4, features, 1));
  last_ = network.register_module("conv_2", Conv3xc(features, features));
  upsampler_ = same_conv(features, channels * scale * scale);
  register_at(network, "upsampler.0", upsampler_.ptr());
}

std::vector<NetworkSegment> SpanBody::segments(const std::function<torch::Tensor(const torch::Tensor&)>& first) const {
  // From the first block on: {x, the features, and what came out of the first block}.
  std::vector<NetworkSegment> segments;
  segments.emplace_back([first, block = blocks_.front()](const Tensors& in) {
    const torch::Tensor features = first(in[0]);
    return Tensors{block(features)[0], features};
  });
  segments.emplace_back([block = blocks_[1]](const Tensors& in) { return Tensors{block(in[0])[0], in[1], in[0]}; });
  for (int i = 2; i < kSpanBlocks - 1; ++i) {
    segments.emplace_back([block = blocks_[i]](const Tensors& in) { return Tensors{block(in[0])[0], in[1], in[2]}; });
  }
  segments.emplace_back([block = blocks_.back()](const Tensors& in) {
    const Tensors out = block(in[0]);
    return Tensors{out[0], in[1], in[2], out[1]};
  });
  segments.emplace_back([body = *this](const Tensors& in) mutable {
    const torch::Tensor joined = body.join_(at::cat({in[1], body.last_(in[0]), in[2], in[3]}, 1));
    return Tensors{at::pixel_shuffle(conv3x3_act(joined, body.upsampler_, Activation::none), body.scale_)};
  });
  return segments;
}

}  // namespace reelgrad
