// 3×3 convolutions of pictures whose channels lie together, with bias and activation, forward and backward; zeros
// around the picture. docs/kernels.md describes the kernels.
//
// cuda/ is for compute capability 9.0: 16-bit elements, sums in float32, asynchronous on the stream, nothing allocated,
// no result through the host: it can be captured in a CUDA graph. Every sum is made in the same order each time. Of a
// batch of nothing, nothing is written, and sums are zeros.
// cpu/ is the reference: float32 pictures without gaps, sums in double.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "reelgrad/kernels/gather.h"
#include "reelgrad/kernels/host_device.h"

struct CUstream_st;

namespace reelgrad {

enum class ConvActivation { none, relu, slope, silu, mish, gelu, sigmoid };  // slope: v > 0 ? v : slope * v

// `channels` of a picture [N, H, W, C] whose elements lie together; the steps in elements. In cuda/ the data and the
// steps are multiples of 16 bytes; channels need not be.
struct ConvPicture {
  void* data = nullptr;
  int batch = 0, height = 0, width = 0, channels = 0;
  std::int64_t pixel_step = 0, row_step = 0, image_step = 0;
};

// Elements of any 4-d tensor, [N, C, H, W], steps in elements; data null: none.
struct ConvTensor {
  void* data = nullptr;
  ElementType element = ElementType::f32;
  std::int64_t image_step = 0, channel_step = 0, row_step = 0, column_step = 0;
};

// Elements at a constant step; data null: all are `otherwise`; count 1: the one for every channel.
struct ConvVector {
  const void* data = nullptr;
  ElementType element = ElementType::f32;
  int count = 0;
  float otherwise = 0;
};

// A convolution's weights as the kernels read them: blocks of output channels, padded with zeros, then each output
// channel's bias and slope in float32. `weight` is [out, in, 3, 3]: element (o, i, ky, kx) at
// o * out_step + i * in_step + (3 * ky + kx) * tap_step.
struct ConvWeights {
  const void* weight = nullptr;
  ElementType element = ElementType::f32;
  int out = 0, in = 0;
  std::int64_t out_step = 0, in_step = 0, tap_step = 0;
  ConvVector bias, slope;
};

// The convolution through which gradients go back: of `in` output channels, taps turned round, without bias; `below` is
// the activation's slope of the layer below.
ConvWeights backward_weights(const ConvWeights& forward, const ConvVector& below);

// Output channels a block: 64 where they are channels of a picture, for conv3x3() and conv3x3_backward(); for
// conv3x3_shuffled() the next of 16, 32 and 48.
constexpr int kConvBlock = 64;
constexpr int kConvUnit = 8;  // channels that are moved together: 16 bytes
REELGRAD_HD constexpr int conv_block_of_shuffled(int out) {
  return out <= 16 ? 16 : out <= 32 ? 32 : 48;
}
constexpr int kConvMostShuffled = 48;

REELGRAD_HD constexpr int conv_blocks(int out, int block) {
  return (out + block - 1) / block;
}
constexpr std::size_t packed_bytes(int out, int in, int block) {
  const std::size_t inputs = static_cast<std::size_t>(conv_blocks(in, kConvBlock)) * kConvBlock;
  const std::size_t weights = std::size_t{9} * inputs * 2 * static_cast<std::size_t>(block);  // of 16 bits
  return static_cast<std::size_t>(conv_blocks(out, block)) *
         (weights + 2 * sizeof(float) * static_cast<std::size_t>(block));
}

struct ConvPacking {
  ConvWeights weights;
  int block = kConvBlock;
  void* packed = nullptr;  // packed_bytes() at a multiple of 128 bytes
};

constexpr std::size_t kConvMostPackings = 40;  // a launch
constexpr int kConvMostIn = 192;               // input channels of conv3x3(); the others take 64
constexpr int kConvMostOut = 192;              // its output channels, as far as it is tested

struct ConvForward {
  ElementType element = ElementType::bf16;  // f16 or bf16: of pictures and packed weights
  ConvPicture x;
  const void* packed = nullptr;
  ConvActivation activation = ConvActivation::none;
  ConvPicture y;
  ConvPicture z;  // data null, or what the activation takes, as the backward pass wants it
  // Data null, or, without an activation: y is residual + factor * (what the convolution gives).
  ConvPicture residual;
  float factor = 1;
};

// y of s² values for each channel: (c * s + i) * s + j is put to channel c of pixel (s * row + i, s * column + j), plus
// `skip`'s channel c of the pixel (row, column).
struct ConvShuffled {
  ElementType element = ElementType::bf16;
  ConvPicture x;
  const void* packed = nullptr;
  int out = 0, scale = 1;
  ConvTensor skip, y;
};

// Gradients through one convolution and the activation below it: `dz` of what the convolution gave -> `dz_below` of
// what that activation took, `z_below`; without z (data null) there is no activation. The weights are packed from
// backward_weights(). At most 64 channels each.
struct ConvBackward {
  ElementType element = ElementType::bf16;
  ConvPicture dz;
  const void* packed = nullptr;
  ConvActivation activation = ConvActivation::none;
  ConvPicture z_below, dz_below;
  float* sums = nullptr;  // conv_sum_rows(dz) rows, or null: for conv_add_sums()
};

// Where gradients enter: `dy` of what the activation gave (put to pixels as ConvShuffled's y for scale > 1) -> `dz` of
// what it took, `z`, with zeros up to dz.channels, a multiple of 8 as z has them in memory. Without z there is no
// activation. At most 64 channels.
struct ConvTopGradient {
  ElementType element = ElementType::bf16;
  ConvTensor dy;
  int channels = 0, scale = 1;
  float factor = 1;  // of all gradients
  ConvActivation activation = ConvActivation::none;
  ConvVector slope;
  ConvPicture z, dz;
  float* sums = nullptr;  // kConvTopSumRows rows
};

// Parts of a convolution's bias and slope gradients, sums over pixels: in each row 64 of the one, then 64 of the other.
constexpr int kConvSumRow = 2 * kConvBlock, kConvTopSumRows = 528;

struct ConvSums {
  const float* rows = nullptr;
  int row_count = 0, channels = 0;
  float* bias = nullptr;   // [channels], or null
  float* slope = nullptr;  // [slopes], or null
  int slopes = 0;          // 1: of all channels together
};

// dW of one convolution of at most 64 to 64 channels: of x [N, H, W, in] and dz [N, H, W, out], those of `dz` and `x`
// that are beyond `out` and `in` left out. `gradient` is laid out as `weight` above, in float32.
struct ConvWeightGradient {
  ConvPicture x, dz;
  int out = 0, in = 0;
  float* gradient = nullptr;
  std::int64_t out_step = 0, in_step = 0, tap_step = 0;
};

constexpr std::size_t kConvMostGradients = 40;  // a launch

namespace cpu {
// `x`, `y` and `z` (data null: not wanted) hold float; so do the weights.
void conv3x3(const ConvWeights& weights, const ConvPicture& x, ConvActivation activation, const ConvPicture& y,
             const ConvPicture& z);
// As ConvBackward, with float pictures and the weights not packed; `bias` and `slope` [channels]: the sums, or null.
void conv3x3_backward(const ConvWeights& backward, const ConvPicture& dz, ConvActivation activation,
                      const ConvPicture& z_below, const ConvPicture& dz_below, float* bias, float* slope);
void conv_weight_gradient(const ConvWeightGradient& gradient);
}  // namespace cpu

namespace cuda {

// Whether these kernels run on a card: of compute capability 9.0, with a driver of CUDA 12.3 or later. That one takes
// more than 4 KB of kernel parameters (12.1), and captures launches that overlap (12.3).
bool has_conv(int device);

void pack_weights(ElementType element, std::span<const ConvPacking> packings, CUstream_st* stream);

// Channels of `from`, put together pixel by pixel, and zeros up to `to.channels`, a multiple of 8.
void take_channels(const ConvTensor& from, int channels, ElementType element, const ConvPicture& to,
                   CUstream_st* stream);

void conv3x3(const ConvForward& conv, CUstream_st* stream);
void conv3x3_shuffled(const ConvShuffled& conv, CUstream_st* stream);

int conv_sum_rows(const ConvPicture& picture);
void conv3x3_backward(const ConvBackward& conv, CUstream_st* stream);
void conv_top_gradient(const ConvTopGradient& top, CUstream_st* stream);
void conv_add_sums(std::span<const ConvSums> sums, CUstream_st* stream);

// All of one element type and of pictures of one size. `workspace`: weight_gradient_bytes(), at a multiple of 16 bytes.
std::size_t weight_gradient_bytes(std::size_t gradients);
void conv_weight_gradients(ElementType element, std::span<const ConvWeightGradient> gradients, void* workspace,
                           CUstream_st* stream);

// The same by other means, for cards from compute capability 8.0 on; the rest of the work is done by the functions
// above, which run there too: pack_weights(), take_channels(), conv_top_gradient(), conv_add_sums(),
// weight_gradient_bytes().
namespace warp {

bool has_conv(int device);  // of these, and with a driver of CUDA 12.3 or later
void conv3x3(const ConvForward& conv, CUstream_st* stream);
void conv_weight_gradients(ElementType element, std::span<const ConvWeightGradient> gradients, void* workspace,
                           CUstream_st* stream);

}  // namespace warp
}  // namespace cuda
}  // namespace reelgrad
