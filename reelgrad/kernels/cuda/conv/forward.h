// What the forward kernels share: their parameters, and what they do with a tile's sums.
#pragma once
#include "reelgrad/kernels/cuda/conv/activation.h"
#include "reelgrad/kernels/cuda/conv/launch.h"
#include "reelgrad/kernels/cuda/conv/ptx.h"
#include "reelgrad/kernels/cuda/conv/tile.h"

namespace reelgrad::cuda::conv {

struct ForwardParams {
  CUtensorMap x, y, z, residual;
  TileGrid tiles;
  const std::byte* packed;
  const float* bias;      // then the slopes
  int blocks, in_blocks;  // of 64 output and input channels
  ConvActivation activation;
  bool keep_z, adds;  // z; the residual
  float factor;
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

// In place: what lies at `to` is the residual.
template <class T>
__device__ __forceinline__ void add_tile(const float (&d)[128], std::uint32_t to, float2 bias, float factor) {
#pragma unroll
  for (int j = 0; j < kFragments; ++j) {
    const std::uint32_t fragment = to + j * kFragmentPixels * kPixelBytes;
    std::uint32_t pairs[4];
    ptx::load_transposed(fragment, pairs);
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const float b = q % 2 == 0 ? bias.x : bias.y;
      const float2 residual = parted<T>(pairs[q]);
      pairs[q] =
          joined<T>(residual.x + factor * (d[8 * j + 2 * q] + b), residual.y + factor * (d[8 * j + 2 * q + 1] + b));
    }
    ptx::store_transposed(fragment, pairs);
  }
}

// What a warpgroup needs to end its tiles.
struct Ending {
  int block;                        // of output channels
  int among;                        // a named barrier of its own
  std::uint32_t residual_is_there;  // a barrier in shared memory of its own
  std::uint32_t offset;             // fragment_offset()
  float2 bias, slope;
};

__device__ __forceinline__ Ending ending_of(const ForwardParams& p, int block, int among, std::uint32_t barrier) {
  return {block,
          among,
          barrier,
          fragment_offset(static_cast<int>(threadIdx.x) % kWarpgroup),
          channel_pair(p.bias, block),
          channel_pair(p.bias + p.blocks * kConvBlock, block)};
}

// Writes the results of a warpgroup's tile `turn` to memory from `place`, a buffer that it has read all of; afterwards
// its first thread may hand the buffer on.
template <class T>
__device__ __forceinline__ void finish_tile(const ForwardParams& p, const float (&d)[128], const Ending& ending,
                                            std::uint32_t place, const TileGrid::Tile& tile, int turn) {
  const bool speaks = threadIdx.x % kWarpgroup == 0;
  const int channel = ending.block * kConvBlock;
  const std::uint32_t mine = place + ending.offset;
  ptx::sync(ending.among, kWarpgroup);  // all four warps have read the buffer
  if (p.keep_z) {
    write_tile<T>(d, mine, ending.bias, ending.slope, None{});
    ptx::fence_shared();
    ptx::sync(ending.among, kWarpgroup);
    if (speaks) {
      ptx::store_box(p.z, place, channel, tile.x, tile.y, tile.n);
      ptx::wait_stores_read();
    }
    ptx::sync(ending.among, kWarpgroup);
  }
  if (p.adds) {
    if (speaks) {
      ptx::barrier_expect(ending.residual_is_there, kTileBytes);
      ptx::load_box(place, p.residual, ending.residual_is_there, channel, tile.x, tile.y, tile.n);
    }
    ptx::barrier_wait(ending.residual_is_there, turn % 2);
    __syncwarp();
    add_tile<T>(d, mine, ending.bias, p.factor);
  } else {
    with_activation(p.activation, [&](auto function) { write_tile<T>(d, mine, ending.bias, ending.slope, function); });
  }
  ptx::fence_shared();
  ptx::sync(ending.among, kWarpgroup);
  if (!speaks) return;
  ptx::store_box(p.y, place, channel, tile.x, tile.y, tile.n);
  ptx::wait_stores_read();
}

}  // namespace reelgrad::cuda::conv
