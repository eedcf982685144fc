// Layer norm over the channels of each pixel: (x - mean) / sqrt(variance + epsilon) * weight + bias, forward and
// backward.
//
// cuda/ is for compute capability 8.0 and later, like large_conv.h: 16-bit elements, all sums in float32, asynchronous
// on the stream, nothing allocated, every sum in the same order each time. Of no pixel, gradients are zeros. cpu/ is
// the reference: float32 elements, sums in double.
#pragma once
#include <cstddef>
#include <cstdint>

#include "reelgrad/kernels/conv.h"

namespace reelgrad {

constexpr int kChannelNormMost = 256;  // channels, a multiple of 8, in cuda/

// `data` [count, channels], without gaps, at a multiple of 16 bytes; null: not wanted.
struct Pixels {
  void* data = nullptr;
  std::int64_t count = 0;
  int channels = 0;
};

struct ChannelNorm {
  ElementType element = ElementType::bf16;  // of x and y
  Pixels x, y;
  ConvVector weight, bias;
  float epsilon = 0;
};

struct ChannelNormBackward {
  ElementType element = ElementType::bf16;  // of x, dy and dx
  Pixels x, dy, dx;
  ConvVector weight;
  float epsilon = 0;
  float *of_weight = nullptr, *of_bias = nullptr;  // [channels], null: not wanted
};

namespace cpu {
void channel_norm(const ChannelNorm& norm);
void channel_norm_backward(const ChannelNormBackward& norm);
}  // namespace cpu

namespace cuda {

void channel_norm(const ChannelNorm& norm, CUstream_st* stream);

// `workspace`: channel_norm_bytes(), at a multiple of 4 bytes.
std::size_t channel_norm_bytes(int channels);
void channel_norm_backward(const ChannelNormBackward& norm, void* workspace, CUstream_st* stream);

}  // namespace cuda
}  // namespace reelgrad
