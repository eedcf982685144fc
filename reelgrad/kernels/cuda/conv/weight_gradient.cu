// Gradients of weights: for each tap, the sum over pixels of dz (transposed) times x, moved by the tap. Pixels are what
// the tensor cores sum over. A rim's box serves all nine taps: one warpgroup takes the three of a row, which lie one
// pixel (128 bytes) apart and make one matrix of 3 × 64 columns. All gradients of a network are one launch: the tiles
// of all of them, one after another, are dealt to the multiprocessors in equal ranges; each range writes what it has of
// a gradient, and a second kernel adds these parts in their order.
#include <algorithm>

#include "reelgrad/kernels/cuda/conv/gradient_parts.h"
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
constexpr int kSums = 3 * kConvBlock / 2;                           // of a thread: 64 × 192 of a warpgroup

struct Gradient {
  CUtensorMap x, dz;
};

struct GradientParams {
  Gradient gradient[kConvMostGradients];
  TileGrid tiles;
  int gradients;
  float4* parts;
};

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
    float4* const part = part_of(p.parts, range, gradient) + group * (kSums / 4) * kWarpgroup + thread;
#pragma unroll
    for (int j = 0; j < kSums / 4; ++j) part[j * kWarpgroup] = {d[4 * j], d[4 * j + 1], d[4 * j + 2], d[4 * j + 3]};
  }
}

}  // namespace
}  // namespace conv

void conv_weight_gradients(ElementType element, std::span<const ConvWeightGradient> gradients, void* workspace,
                           CUstream_st* stream) {
  using namespace conv;
  if (gradients.empty()) return;
  require_gradients(gradients);
  const bool empty = is_empty(gradients.front().x);  // the sums of nothing are zeros
  const int count = static_cast<int>(gradients.size());
  GradientParams params{};
  params.tiles = tile_grid(gradients.front().x);
  params.gradients = count;
  params.parts = static_cast<float4*>(workspace);
  const int ranges = std::min(params.tiles.count * count, multiprocessors());
  for (int i = 0; i < count && !empty; ++i) {
    const ConvWeightGradient& g = gradients[static_cast<std::size_t>(i)];
    params.gradient[i] = {rim_map(g.x, element), tile_map(g.dz, element)};
  }
  const auto kernel = with_type(element, [](auto type) { return gradient_kernel<typename decltype(type)::type>; });
  launch(kernel, "conv_weight_gradients", dim3(static_cast<unsigned>(ranges)), kThreads, kSharedBytes, params, stream);
  add_parts(gradients, params.parts, ranges, params.tiles.count, stream);
}

}  // namespace reelgrad::cuda
