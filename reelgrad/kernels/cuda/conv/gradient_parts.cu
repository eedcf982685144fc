#include "reelgrad/kernels/cuda/conv/gradient_parts.h"

#include "reelgrad/kernels/cuda/conv/ptx.h"

namespace reelgrad::cuda {
namespace conv {
namespace {

struct Place {
  float* gradient;
  std::int64_t out_step, in_step, tap_step;
  int out, in;
  int first_part, parts;
};

struct AddParams {
  Place place[kConvMostGradients];
  const float4* parts;
};

constexpr int kAddThreads = 256, kAddGroups = kAddThreads / 32;  // 32 units of a part, the parts dealt to 8 warps

__device__ __forceinline__ void operator+=(float4& a, const float4& b) {
  a.x += b.x;
  a.y += b.y;
  a.z += b.z;
  a.w += b.w;
}

__global__ void __launch_bounds__(kAddThreads) add_kernel(const __grid_constant__ AddParams p) {
  __shared__ float4 sums[kAddGroups][32];
  ptx::wait_for_earlier_kernels();
  const Place& place = p.place[blockIdx.y];
  const int lane = threadIdx.x % 32, group = threadIdx.x / 32, unit = static_cast<int>(blockIdx.x) * 32 + lane;
  const float4* const units = p.parts + static_cast<std::int64_t>(place.first_part) * kPartUnits + unit;
  float4 sum{0, 0, 0, 0};
#pragma unroll 4
  for (int i = group; i < place.parts; i += kAddGroups)
    sum += __ldcg(units + static_cast<std::int64_t>(i) * kPartUnits);
  sums[group][lane] = sum;
  __syncthreads();
  if (group != 0) return;
#pragma unroll
  for (int i = 1; i < kAddGroups; ++i) sum += sums[i][lane];
  const int thread = unit % kGroupUnits, j = unit / kGroupUnits % kPartGroups, row = unit / kGroupUnits / kPartGroups;
  const int out = thread / 32 * 16 + thread % 32 / 4, column = 8 * j + thread % 4 * 2;
  const int tap = 3 * row + column / kConvBlock, in = column % kConvBlock;
  const float values[2][2] = {{sum.x, sum.y}, {sum.z, sum.w}};
#pragma unroll
  for (int o = 0; o < 2; ++o)
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (out + 8 * o < place.out && in + i < place.in)
        place.gradient[(out + 8 * o) * place.out_step + (in + i) * place.in_step + tap * place.tap_step] = values[o][i];
}

// Which parts a gradient has.
void set_parts(Place& place, int gradient, int ranges, int tiles, int gradients) {
  const int begin = gradient * tiles, end = begin + tiles;
  int first = 0, last = ranges - 1;
  while (range_begin(first + 1, ranges, tiles * gradients) <= begin) ++first;
  while (range_begin(last, ranges, tiles * gradients) >= end) --last;
  place.first_part = first + gradient;
  place.parts = last - first + 1;
}

}  // namespace

void require_gradients(std::span<const ConvWeightGradient> gradients) {
  if (gradients.size() > kConvMostGradients) fail("conv_weight_gradients: too many convolutions at once");
  for (const ConvWeightGradient& g : gradients) require_channels("conv_weight_gradients", g.x.channels, g.dz.channels);
}

void add_parts(std::span<const ConvWeightGradient> gradients, const float4* parts, int ranges, int tiles,
               CUstream_st* stream) {
  const int count = static_cast<int>(gradients.size());
  AddParams add{};
  add.parts = parts;
  for (int i = 0; i < count; ++i) {
    const ConvWeightGradient& g = gradients[static_cast<std::size_t>(i)];
    add.place[i] = {g.gradient, g.out_step, g.in_step, g.tap_step, g.out, g.in, 0, 0};
    if (tiles > 0) set_parts(add.place[i], i, ranges, tiles, count);
  }
  launch(add_kernel, "conv_weight_gradients", dim3(kPartUnits / 32, static_cast<unsigned>(count)), kAddThreads, 0, add,
         stream);
}

}  // namespace conv

std::size_t weight_gradient_bytes(std::size_t gradients) {
  return conv::kPartBytes * (static_cast<std::size_t>(conv::multiprocessors()) + gradients);
}

}  // namespace reelgrad::cuda
