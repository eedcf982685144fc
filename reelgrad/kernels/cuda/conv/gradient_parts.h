// Weights' gradients in parts. The tiles of many gradients, one after another, are dealt to the multiprocessors in
// equal ranges; each range writes what it has of a gradient, and a second kernel adds these parts, always in the same
// order.
//
// A part is the nine taps' sums [64 out, 64 in] as the tensor cores hold them: of each row of taps 192 columns, 64 a
// tap, in groups of 8; in a group 128 units of four sums, unit u of rows out = 16 (u / 32) + (u % 32) / 4 and out + 8,
// columns 2 (u % 4) and the next.
#pragma once
#include "reelgrad/kernels/cuda/conv/launch.h"

namespace reelgrad::cuda::conv {

constexpr int kRowsOfTaps = 3, kPartGroups = 3 * kConvBlock / 8, kGroupUnits = 128;
constexpr int kPartUnits = kRowsOfTaps * kPartGroups * kGroupUnits;  // float4 in a part
constexpr std::size_t kPartBytes = std::size_t{kPartUnits} * sizeof(float4);

// The first of range i's tiles, all gradients' tiles counted through.
__host__ __device__ __forceinline__ int range_begin(int i, int ranges, int tiles) {
  return static_cast<int>(static_cast<std::int64_t>(tiles) * i / ranges);
}

// A range and a gradient that meet have a part of their own: along the ranges one of the two grows at each step.
__device__ __forceinline__ float4* part_of(float4* parts, int range, int gradient) {
  return parts + static_cast<std::int64_t>(range + gradient) * kPartUnits;
}

// Throws unless there are as few as a launch takes, of at most 64 to 64 channels.
void require_gradients(std::span<const ConvWeightGradient> gradients);

// Each gradient from its parts; `tiles` of one gradient.
void add_parts(std::span<const ConvWeightGradient> gradients, const float4* parts, int ranges, int tiles,
               CUstream_st* stream);

}  // namespace reelgrad::cuda::conv
