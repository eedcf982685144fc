// Gradients of weights: for each tap, the sum over pixels of dz (transposed) times x, moved by the tap. Pixels are what
// the tensor cores sum over. A rim's box serves all nine taps: one warpgroup takes the three of a row, which lie one
// pixel (128 bytes) apart and make one matrix of 3 × 64 columns. All gradients of a network are one launch: the tiles
// of all of them, one after another, are dealt to the multiprocessors in equal ranges; each range writes what it has of
// a gradient, and a second kernel adds these parts in their order.
#include <algorithm>

#include "reelgrad/kernels/cuda/conv/launch.h"
#include "reelgrad/kernels/cuda/conv/multiply.h"
#include "reelgrad/kernels/cuda/conv/tile.h"

namespace reelgrad::cuda {
namespace conv {
namespace {

constexpr int kStages = 3, kRows = 3;  // rows of taps: one a consumer
constexpr int kThreads = (1 + kRows) * kWarpgroup;
constexpr int kStageBytes = kRimBuffer + kTileBytes;
constexpr int kSharedBytes = kSwizzleBytes + kStages * kStageBytes + 64;
constexpr int kStepRows = 2, kTileSteps = kTileHeight / kStepRows;  // 16 pixels an instruction

constexpr int kSums = 96;                                   // of a thread
constexpr int kPartUnits = kRows * kSums / 4 * kWarpgroup;  // float4 in a part
constexpr std::size_t kPartBytes = std::size_t{kPartUnits} * sizeof(float4);

struct Gradient {
  CUtensorMap x, dz;
};

struct GradientParams {
  Gradient gradient[kConvMostGradients];
  TileGrid tiles;
  int gradients;
  float4* parts;
};

// The first of range i's tiles, all gradients' tiles counted through.
__host__ __device__ __forceinline__ int range_begin(int i, int ranges, int tiles) {
  return static_cast<int>(static_cast<std::int64_t>(tiles) * i / ranges);
}

// A range and a gradient that meet have a part of their own: along the ranges one of the two grows at each step.
__device__ __forceinline__ float4* part_of(const GradientParams& p, int range, int gradient) {
  return p.parts + static_cast<std::int64_t>(range + gradient) * kPartUnits;
}

template <class T>
__device__ __forceinline__ void multiply_gradient(float (&d)[kSums], std::uint32_t x, std::uint32_t dz, bool add) {
  wgmma::begin();
#pragma unroll
  for (int k = 0; k < kTileSteps; ++k)
    wgmma::multiply_transposed<T>(
        d, wgmma::matrix(dz, 8 * kPixelBytes) + wgmma::moved(k * kStepRows * 8 * kPixelBytes),
        wgmma::matrix(x, kRimRowBytes, kPixelBytes) + wgmma::moved(k * kStepRows * kRimRowBytes), add || k > 0);
  wgmma::commit();
}

template <class T>
__global__ void __launch_bounds__(kThreads, 1) gradient_kernel(const __grid_constant__ GradientParams p) {
  extern __shared__ std::uint8_t shared_bytes[];
  const std::uint32_t stages = (ptx::shared_address(shared_bytes) + kSwizzleBytes - 1) / kSwizzleBytes * kSwizzleBytes;
  const std::uint32_t full = stages + kStages * kStageBytes, empty = full + 8 * kStages;
  const int group = threadIdx.x / kWarpgroup, thread = threadIdx.x % kWarpgroup;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      ptx::barrier_init(full + 8 * i, 1);
      ptx::barrier_init(empty + 8 * i, kRows);
    }
    ptx::barrier_init_done();
  }
  __syncthreads();
  ptx::wait_for_earlier_kernels();
  const int range = static_cast<int>(blockIdx.x), ranges = static_cast<int>(gridDim.x);
  const int all = p.tiles.count * p.gradients;
  const int begin = range_begin(range, ranges, all), end = range_begin(range + 1, ranges, all);

  if (group == kRows) {
    if (thread != 0) return;
    for (int i = begin; i < end; ++i) {
      const int turn = i - begin, stage = turn % kStages;
      if (turn >= kStages) ptx::barrier_wait(empty + 8 * stage, turn / kStages % 2 ^ 1);
      const int gradient = i / p.tiles.count;
      const TileGrid::Tile tile = p.tiles.at(i - gradient * p.tiles.count);
      const std::uint32_t to = stages + stage * kStageBytes;
      ptx::barrier_expect(full + 8 * stage, kRimBytes + kTileBytes);
      ptx::load_box(to, p.gradient[gradient].x, full + 8 * stage, 0, tile.x - 1, tile.y - 1, tile.n);
      ptx::load_box(to + kRimBuffer, p.gradient[gradient].dz, full + 8 * stage, 0, tile.x, tile.y, tile.n);
    }
    return;
  }

  float d[kSums];
  for (int i = begin; i < end;) {
    const int gradient = i / p.tiles.count, stop = min(end, (gradient + 1) * p.tiles.count);
    bool add = false;
    for (; i < stop; ++i, add = true) {
      const int turn = i - begin, stage = turn % kStages;
      const std::uint32_t from = stages + stage * kStageBytes;
      ptx::barrier_wait(full + 8 * stage, turn / kStages % 2);
      multiply_gradient<T>(d, from + group * kRimRowBytes, from + kRimBuffer, add);
      wgmma::wait<1>();  // the one before has been read
      if (turn > 0 && thread == 0) ptx::barrier_arrive(empty + 8 * ((turn - 1) % kStages));
    }
    wgmma::finish(d);
    float4* const part = part_of(p, range, gradient) + group * (kSums / 4) * kWarpgroup + thread;
#pragma unroll
    for (int j = 0; j < kSums / 4; ++j) part[j * kWarpgroup] = {d[4 * j], d[4 * j + 1], d[4 * j + 2], d[4 * j + 3]};
  }
}

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
  const int thread = unit % kWarpgroup, j = unit / kWarpgroup % (kSums / 4), row = unit / kWarpgroup / (kSums / 4);
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
}  // namespace conv

std::size_t weight_gradient_bytes(std::size_t gradients) {
  return conv::kPartBytes * (static_cast<std::size_t>(conv::multiprocessors()) + gradients);
}

void conv_weight_gradients(ElementType element, std::span<const ConvWeightGradient> gradients, void* workspace,
                           CUstream_st* stream) {
  using namespace conv;
  if (gradients.empty()) return;
  if (gradients.size() > kConvMostGradients) fail("conv_weight_gradients: too many convolutions at once");
  const bool empty = is_empty(gradients.front().x);  // the sums of nothing are zeros
  const int count = static_cast<int>(gradients.size());
  GradientParams params{};
  params.tiles = tile_grid(gradients.front().x);
  params.gradients = count;
  params.parts = static_cast<float4*>(workspace);
  const int ranges = std::min(params.tiles.count * count, multiprocessors());
  AddParams add{};
  add.parts = params.parts;
  for (int i = 0; i < count; ++i) {
    const ConvWeightGradient& g = gradients[static_cast<std::size_t>(i)];
    require_channels("conv_weight_gradients", g.x.channels, g.dz.channels);
    add.place[i] = {g.gradient, g.out_step, g.in_step, g.tap_step, g.out, g.in, 0, 0};
    if (empty) continue;
    params.gradient[i] = {rim_map(g.x, element), tile_map(g.dz, element)};
    set_parts(add.place[i], i, ranges, params.tiles.count, count);
  }
  const auto kernel =
      with_type(element, [](auto type) { return gradient_kernel<typename decltype(type)::type>; });
  launch(kernel, "conv_weight_gradients", dim3(static_cast<unsigned>(ranges)), kThreads, kSharedBytes, params, stream);
  launch(add_kernel, "conv_weight_gradients", dim3(kPartUnits / 32, static_cast<unsigned>(count)), kAddThreads, 0, add,
         stream);
}

}  // namespace reelgrad::cuda
