// A row of convolutions as own_conv() sees it, and tensors as kernels/conv.h takes them.
#pragma once
#include <c10/util/intrusive_ptr.h>
#include <torch/custom_class.h>
#include <torch/types.h>

#include <vector>

#include "reelgrad/kernels/conv.h"
#include "reelgrad/nn/conv_act.h"

namespace reelgrad::own {

using Tensors = std::vector<torch::Tensor>;

constexpr std::int64_t rounded_up(std::int64_t n, std::int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

bool element_is_known(torch::ScalarType type);
ElementType element_of(torch::ScalarType type);
ConvVector vector_of(const torch::Tensor& t, float otherwise);
ConvTensor tensor_of(const torch::Tensor& t);

// [N, C, H, W] whose channels lie together; undefined: no data.
ConvPicture picture_of(const torch::Tensor& t);
// With the channels up to a multiple of 8 that new_picture() gives every pixel.
ConvPicture padded_picture_of(const torch::Tensor& t);
bool is_picture(const torch::Tensor& t, torch::ScalarType type);
// Its pixels are a multiple of 8 channels apart.
torch::Tensor new_picture(const torch::Tensor& like, std::int64_t channels, torch::ScalarType type);

// `t` itself where it is one, else its values in memory of their own. Their device is the current one.
torch::Tensor as_picture(const torch::Tensor& t, torch::ScalarType type);

// In which a convolution of `input` is done: its own, or autocast's.
torch::ScalarType compute_type(const torch::Tensor& input);

// Of the current device.
CUstream_st* stream();

// A row without its tensors.
struct Row : torch::CustomClassHolder {
  struct Layer {
    int out = 0, in = 0;
    ConvActivation activation = ConvActivation::none;
    float slope = 0;              // where it has no tensor
    bool keeps_argument = false;  // of the activation: it cannot be told from the result
    bool has_bias = false, has_slope = false;
  };
  enum class End { none, shuffled, added };
  std::vector<Layer> layers;
  torch::ScalarType type = torch::kHalf;
  End end = End::none;
  bool by_warps = false;  // cuda::warp's kernels
  int scale = 1;          // of the shuffle
  float factor = 1;       // of what is added to
  bool gradients = false;
  torch::ScalarType input_type = torch::kHalf, added_type = torch::kHalf;  // of a row with gradients

  bool adds() const { return end != End::none; }

  ElementType element() const { return element_of(type); }
  void convolve(const ConvForward& conv) const;  // on the current stream
};

using RowPtr = c10::intrusive_ptr<Row>;

Row::Layer layer_of(const ConvLayer& layer);

// The tensors of a layer, as they stand in a list of three a layer.
struct Parameters {
  torch::Tensor weight, bias, slope;
};

Parameters parameters_of(const Tensors& list, std::size_t layer);
ConvWeights weights_of(const Row::Layer& layer, const Parameters& p);

// What forward leaves to backward, in the order in which it is saved.
struct Kept {
  torch::Tensor input;  // as the kernels take it
  Tensors packed;       // per layer: the weights for the way back
  Tensors results;      // per layer: y; undefined for the last
  Tensors arguments;    // per layer: what tells the activation's derivative; undefined where nothing is needed
  Tensors slopes;       // per layer; undefined where there is none

  Tensors list() const;
  static Kept of(const Tensors& all);
};

}  // namespace reelgrad::own
