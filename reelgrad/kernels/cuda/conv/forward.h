// What the forward kernels share: their parameters, and what they do with a tile's sums.
#pragma once
#include "reelgrad/kernels/cuda/conv/activation.h"
#include "reelgrad/kernels/cuda/conv/launch.h"
#include "reelgrad/kernels/cuda/conv/ptx.h"
#include "reelgrad/kernels/cuda/conv/tile.h"

namespace reelgrad::cuda::conv {

struct ForwardParams {
  CUtensorMap x, y, z;
  TileGrid tiles;
  const std::byte* packed;
  const float* bias;      // then the slopes
  int blocks, in_blocks;  // of 64 output and input channels
  ConvActivation activation;
  bool keep_z;
};

// At most 64 input channels; more.
void launch_forward(ElementType element, int in, const ForwardParams& params, CUstream_st* stream);
void launch_wide_forward(ElementType element, int in, const ForwardParams& params, CUstream_st* stream);

// This thread's two channels' values, c and c + 8, of a block.
__device__ __forceinline__ float2 channel_pair(const float* values, int block) {
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
  const int channel = block * kConvBlock + thread / 32 * 16 + thread % 32 / 4;
  return {values[channel], values[channel + 8]};
}

template <class T, class Function>
__device__ __forceinline__ void write_tile(const float (&d)[128], std::uint32_t to, float2 bias, float2 slope,
                                           Function) {
#pragma unroll
  for (int j = 0; j < kFragments; ++j) {
    std::uint32_t out[4];
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const float b = q % 2 == 0 ? bias.x : bias.y, s = q % 2 == 0 ? slope.x : slope.y;
      out[q] = joined<T>(Function::value(d[8 * j + 2 * q] + b, s), Function::value(d[8 * j + 2 * q + 1] + b, s));
    }
    ptx::store_transposed(to + j * kFragmentPixels * kPixelBytes, out);
  }
}

// Writes a tile's results to memory from `place`, a buffer that this warpgroup has read all of; afterwards its first
// thread may hand the buffer on. `among`: a named barrier of the warpgroup's own; `offset`: fragment_offset().
template <class T>
__device__ __forceinline__ void finish_tile(const ForwardParams& p, const float (&d)[128], std::uint32_t place,
                                            std::uint32_t offset, int among, int block, const TileGrid::Tile& tile,
                                            float2 bias, float2 slope) {
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
  const std::uint32_t mine = place + offset;
  ptx::sync(among, kWarpgroup);  // all four warps have read the buffer
  if (p.keep_z) {
    write_tile<T>(d, mine, bias, slope, None{});
    ptx::fence_shared();
    ptx::sync(among, kWarpgroup);
    if (thread == 0) {
      ptx::store_box(p.z, place, block * kConvBlock, tile.x, tile.y, tile.n);
      ptx::wait_stores_read();
    }
    ptx::sync(among, kWarpgroup);
  }
  with_activation(p.activation, [&](auto function) { write_tile<T>(d, mine, bias, slope, function); });
  ptx::fence_shared();
  ptx::sync(among, kWarpgroup);
  if (thread != 0) return;
  ptx::store_box(p.y, place, block * kConvBlock, tile.x, tile.y, tile.n);
  ptx::wait_stores_read();
}

}  // namespace reelgrad::cuda::conv
