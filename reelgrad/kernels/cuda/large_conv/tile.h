// What the kernels of large convolutions share. One instruction multiplies 16 × 16 by 16 × 8: 16 pixels next to each
// other in a row, their 16 channels, 8 of the 16 channels that come out.
//
// A pixel takes 32 bytes in shared memory, two units of 8 channels. Unit u of a row's pixel i is at
// i * 32 + ((u ^ i / 4 % 2) * 16), so that the same unit of eight neighbours, wherever they begin, lies in different
// banks.
#pragma once
#include "reelgrad/kernels/cuda/conv/launch.h"
#include "reelgrad/kernels/cuda/conv/mma.h"
#include "reelgrad/kernels/cuda/conv/multiply.h"
#include "reelgrad/kernels/cuda/conv/ptx.h"
#include "reelgrad/kernels/large_conv.h"

namespace reelgrad::cuda::large {

constexpr int kSide = kLargeSide, kReach = kSide / 2, kRim = 2 * kReach;
constexpr int kChannels = kLargeChannels, kPixelUnits = kChannels / kConvUnit;
constexpr int kPixelBytes = 2 * kChannels, kUnitBytes = 16;
constexpr int kStrip = 16;      // pixels of one instruction
constexpr int kFragments = 32;  // threads of a warp, each with a part of a matrix

__device__ __forceinline__ std::uint32_t unit_offset(int pixel, int unit) {
  return static_cast<std::uint32_t>(pixel * kPixelBytes + ((unit ^ (pixel / 4 % 2)) << 4));
}

__device__ __forceinline__ int lane() {
  return static_cast<int>(threadIdx.x) % 32;
}

__device__ __forceinline__ int warp() {
  return static_cast<int>(threadIdx.x) / 32;
}

__device__ __forceinline__ const std::uint16_t* pixel_at(const ConvPicture& p, int n, int y, int x) {
  return static_cast<const std::uint16_t*>(p.data) + n * p.image_step + y * p.row_step + x * p.pixel_step;
}

}  // namespace reelgrad::cuda::large
