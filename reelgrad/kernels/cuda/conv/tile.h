// How pictures are cut. A tile is 8 × 32 output pixels: the columns of one tensor core instruction. One box of the copy
// engine brings it with its rim, 10 × 34 pixels of 128 bytes (64 channels; those that the picture lacks are zeros, and
// so is all that lies outside of it). With the 128-byte swizzle a matrix may begin at any pixel, so that the nine taps
// are nine begins in one copy: groups of 8 pixels are a rim's row apart.
#pragma once
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "reelgrad/kernels/conv.h"
#include "reelgrad/kernels/cuda/conv/ptx.h"

namespace reelgrad::cuda::conv {

constexpr int kTileWidth = 8, kTileHeight = 32, kTilePixels = kTileWidth * kTileHeight;
constexpr int kRimWidth = kTileWidth + 2, kRimHeight = kTileHeight + 2;
constexpr int kPixelBytes = 128;
constexpr int kPixelUnits = kPixelBytes / 16;
constexpr int kTileBytes = kTilePixels * kPixelBytes;
constexpr int kRimRowBytes = kRimWidth * kPixelBytes;
constexpr int kRimBytes = kRimHeight * kRimRowBytes;
constexpr int kSwizzleBytes = 1024;  // after which the swizzle's pattern repeats; buffers begin at its multiples
constexpr int kRimBuffer = (kRimBytes + kSwizzleBytes - 1) / kSwizzleBytes * kSwizzleBytes;

constexpr int kStepChannels = 16;              // of one instruction
constexpr int kStepBytes = kStepChannels * 2;  // within a pixel's 128 bytes
constexpr int kTapBytes = kConvBlock * kPixelBytes;
constexpr int kTaps = 9;
constexpr int kWeightBytes = kTaps * kTapBytes;  // of one block of 64 output channels

constexpr int kWarpgroup = 128;  // threads

// The tiles of a batch, image by image and row by row.
struct TileGrid {
  int across = 0, per_image = 0, count = 0;
  int width = 0, height = 0;

  struct Tile {
    int x, y, n;
  };

  __device__ Tile at(int i) const {
    const int n = i / per_image, rest = i - n * per_image, row = rest / across;
    return {(rest - row * across) * kTileWidth, row * kTileHeight, n};
  }

  __device__ bool reaches_out(const Tile& tile) const {
    return tile.x + kTileWidth > width || tile.y + kTileHeight > height;
  }
};

inline TileGrid tile_grid(const ConvPicture& picture) {
  TileGrid grid{.width = picture.width, .height = picture.height};
  grid.across = (picture.width + kTileWidth - 1) / kTileWidth;
  grid.per_image = grid.across * ((picture.height + kTileHeight - 1) / kTileHeight);
  grid.count = grid.per_image * picture.batch;
  return grid;
}

// Two elements as one register, the first in its lower half.
template <class T>
__device__ __forceinline__ std::uint32_t joined(float first, float second) {
  std::uint32_t pair;
  if constexpr (std::is_same_v<T, __half>)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}

template <class T>
__device__ __forceinline__ float2 parted(std::uint32_t pair) {
  if constexpr (std::is_same_v<T, __half>)
    return __half22float2(reinterpret_cast<const __half2&>(pair));
  else
    return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
}

// Where thread `thread` of a warpgroup writes its part of 64 channels × 16 pixels with store_transposed(), or reads it,
// as a byte of a tile without a rim: its matrices are channels 16 warp … + 15 of pixels 0–7 and 8–15.
__device__ __forceinline__ std::uint32_t fragment_offset(int thread) {
  const int warp = thread / 32, matrix = thread % 32 / 8, row = thread % 8;
  const int pixel = 8 * (matrix / 2) + row, chunk = 2 * warp + matrix % 2;
  return static_cast<std::uint32_t>(pixel * kPixelBytes + ((chunk ^ row) << 4));
}

constexpr int kFragmentPixels = 16;
constexpr int kFragments = kTilePixels / kFragmentPixels;

}  // namespace reelgrad::cuda::conv
