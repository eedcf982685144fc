// What SPAN and TemporalSPAN have in common: all that follows their first convolutions.
#pragma once
#include <fmt/format.h>
#include <torch/nn/modules/conv.h>

#include <functional>
#include <vector>

#include "reelgrad/nn/conv3xc.h"
#include "reelgrad/nn/network.h"

namespace reelgrad {

inline constexpr int kSpanBlocks = 6;

// [N, F, H, W] -> {output, what came out of the block's first convolution and its activation}, both [N, F, H, W].
using SpanBlock = std::function<std::vector<torch::Tensor>(const torch::Tensor&)>;

// Registers block_1 to block_6 of the type `Block`, made from the number of features.
template <class Block>
std::vector<SpanBlock> add_span_blocks(torch::nn::Module& network, int features) {
  std::vector<SpanBlock> blocks;
  for (int i = 1; i <= kSpanBlocks; ++i) {
    Block block = network.register_module(fmt::format("block_{}", i), Block(features));
    blocks.emplace_back([block](const torch::Tensor& x) mutable { return block->forward(x); });
  }
  return blocks;
}

// The output of a block that weighs itself: `y`, what its convolutions made of `x`.
torch::Tensor weighed_by_itself(const torch::Tensor& y, const torch::Tensor& x);

// The blocks in a row, a convolution that joins what came out of four places, and a pixel shuffle.
class SpanBody {
 public:
  // Registers conv_cat, conv_2 and upsampler.0.
  SpanBody(torch::nn::Module& network, std::vector<SpanBlock> blocks, int features, int channels, int scale);

  // One segment a block and one for what follows; `first` makes the features of what the first of them gets.
  std::vector<NetworkSegment> segments(const std::function<torch::Tensor(const torch::Tensor&)>& first) const;

  const torch::nn::Conv2d& upsampler() const { return upsampler_; }

 private:
  std::vector<SpanBlock> blocks_;
  torch::nn::Conv2d join_{nullptr}, upsampler_{nullptr};
  Conv3xc last_{nullptr};
  int scale_;
};

}  // namespace reelgrad
