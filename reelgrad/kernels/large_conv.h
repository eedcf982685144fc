// Convolutions with a large kernel, RealPLKSR's: 17 × 17, of the first 16 channels of pictures whose channels lie
// together, zeros around the picture; all other channels stay as they are. docs/kernels.md describes the kernels.
//
// cuda/ is for compute capability 8.0 and later (warp::has_conv() of kernels/conv.h): 16-bit elements, sums in float32,
// asynchronous on the stream, nothing allocated, no result through the host: it can be captured in a CUDA graph. Every
// sum is made in the same order each time. Of a batch of nothing, nothing is written, and gradients are zeros.
// cpu/ is the reference: float32 pictures without gaps, sums in double.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "reelgrad/kernels/conv.h"

namespace reelgrad {

constexpr int kLargeSide = 17, kLargeTaps = kLargeSide * kLargeSide, kLargeChannels = 16;
constexpr int kLargeMostChannels = 8192;  // of all together, in cuda/

// [16 out, 16 in, 17, 17]: element (o, i, ky, kx) at o * out_step + i * in_step + (17 * ky + kx) * tap_step.
struct LargeWeights {
  const void* data = nullptr;
  ElementType element = ElementType::f32;
  std::int64_t out_step = 0, in_step = 0, tap_step = 0;
  ConvVector bias;
};

// The convolution through which gradients go back: taps turned round, without bias.
LargeWeights backward_weights(const LargeWeights& forward);

// As the kernels read them: 16-bit weights, then each output channel's bias in float32.
constexpr std::size_t kLargeWeightBytes = std::size_t{2} * kLargeTaps * kLargeChannels * kLargeChannels;
constexpr std::size_t kLargePackedBytes = kLargeWeightBytes + sizeof(float) * kLargeChannels;

struct LargePacking {
  LargeWeights weights;
  void* packed = nullptr;  // kLargePackedBytes at a multiple of 16 bytes
};

constexpr std::size_t kLargeMostPackings = 2;  // a launch: the ways there and back

// `y` has the size of `x`, in memory of its own; channels are a multiple of 8, at least 16.
struct LargeConv {
  ElementType element = ElementType::bf16;  // f16 or bf16: of pictures and packed weights
  ConvPicture x;
  const void* packed = nullptr;
  ConvPicture y;
};

// Of the weights and the bias, from the gradient `dy` of what the convolution gave and its input; of both pictures the
// first 16 channels are read. `weight` is laid out as LargeWeights, in float32; null: not wanted. Infinity in `x`
// within 8 rows of the upper or lower edge can make NaN in cuda/ of what is infinite in cpu/.
struct LargeGradients {
  ConvPicture x, dy;
  float* weight = nullptr;
  std::int64_t out_step = 0, in_step = 0, tap_step = 0;
  float* bias = nullptr;  // [16]
};

namespace cpu {
void large_conv(const LargeWeights& weights, const ConvPicture& x, const ConvPicture& y);  // float32 weights and bias
void large_gradients(const LargeGradients& gradients);
}  // namespace cpu

namespace cuda {

void pack_large_weights(ElementType element, std::span<const LargePacking> packings, CUstream_st* stream);

void large_conv(const LargeConv& conv, CUstream_st* stream);

// `workspace`: large_gradient_bytes(), at a multiple of 16 bytes.
std::size_t large_gradient_bytes();
void large_gradients(ElementType element, const LargeGradients& gradients, void* workspace, CUstream_st* stream);

}  // namespace cuda
}  // namespace reelgrad
