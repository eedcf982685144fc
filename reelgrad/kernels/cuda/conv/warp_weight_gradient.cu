// Gradients of weights for cards from compute capability 8.0 on: for each tap, the sum over pixels of dz (transposed)
// times x, moved by the tap. Nine warps have a tap each, of 64 × 64 sums; a tile is 16 × 8 pixels, a row of them one
// step. The next tile is on its way while one is used. Ranges and parts as in gradient_parts.h.
#include <algorithm>

#include "reelgrad/kernels/cuda/conv/gradient_parts.h"
#include "reelgrad/kernels/cuda/conv/multiply.h"
#include "reelgrad/kernels/cuda/conv/warp_tile.h"

namespace reelgrad::cuda {
namespace conv {
namespace {

constexpr int kThreads = kTaps * 32;
constexpr int kWidth = kMatrixRows, kHeight = 8, kRim = kWidth + 2, kRimTall = kHeight + 2;
constexpr int kBoxBytes = kRim * kRimTall * kPixelBytes, kDzBytes = kWidth * kHeight * kPixelBytes;
constexpr int kStages = 2, kStageBytes = kBoxBytes + kDzBytes;
constexpr int kSharedBytes = kPixelBytes + kStages * kStageBytes;
constexpr int kOutTiles = kConvBlock / 16, kInTiles = kConvBlock / 8;

using Tiles = WarpTiles<kWidth, kHeight>;
using Sums = float[kOutTiles][kInTiles][4];

struct Pictures {
  ConvPicture x, dz;
};

struct WarpGradientParams {
  Pictures pictures[kConvMostGradients];
  Tiles tiles;
  int gradients;
  float4* parts;
};

__device__ __forceinline__ void copy_tile(const WarpGradientParams& p, std::uint32_t to, int i) {
  const int gradient = i / p.tiles.count;
  const Pictures& pictures = p.pictures[gradient];
  const TileGrid::Tile tile = p.tiles.at(i - gradient * p.tiles.count);
  copy_box<kThreads>(to, pictures.x, 0, tile.x - 1, tile.y - 1, tile.n, kRim, kRimTall);
  copy_box<kThreads>(to + kBoxBytes, pictures.dz, 0, tile.x, tile.y, tile.n, kWidth, kHeight);
}

// `first`: the box's pixel that the warp's tap gives the tile's first one.
template <class T>
__device__ __forceinline__ void multiply_pixels(Sums& d, std::uint32_t box, std::uint32_t dz, int first) {
  const int lane = static_cast<int>(threadIdx.x) % 32, row = lane % 8, matrix = lane / 8;
#pragma unroll 1
  for (int step = 0; step < kHeight; ++step) {
    std::uint32_t a[kOutTiles][4];
#pragma unroll
    for (int o = 0; o < kOutTiles; ++o)
      ptx::load_transposed(dz + unit_offset(step * kWidth + matrix / 2 * 8 + row, 2 * o + matrix % 2), a[o]);
#pragma unroll
    for (int pair = 0; pair < kInTiles / 2; ++pair) {
      std::uint32_t b[4];
      ptx::load_transposed(box + unit_offset(first + step * kRim + matrix % 2 * 8 + row, 2 * pair + matrix / 2), b);
#pragma unroll
      for (int o = 0; o < kOutTiles; ++o) {
        mma::multiply<T>(d[o][2 * pair], a[o], b[0], b[1]);
        mma::multiply<T>(d[o][2 * pair + 1], a[o], b[2], b[3]);
      }
    }
  }
}

__device__ __forceinline__ void write_sums(const Sums& d, float4* part, int tap) {
  float4* const groups = part + (tap / 3 * kPartGroups + tap % 3 * kInTiles) * kGroupUnits + threadIdx.x % 32;
#pragma unroll
  for (int o = 0; o < kOutTiles; ++o)
#pragma unroll
    for (int i = 0; i < kInTiles; ++i)
      groups[i * kGroupUnits + o * 32] = {d[o][i][0], d[o][i][1], d[o][i][2], d[o][i][3]};
}

template <class T>
__global__ void __launch_bounds__(kThreads, 1) warp_gradient_kernel(const __grid_constant__ WarpGradientParams p) {
  extern __shared__ std::uint8_t shared_bytes[];
  ptx::wait_for_earlier_kernels();
  const std::uint32_t stages = (ptx::shared_address(shared_bytes) + kPixelBytes - 1) / kPixelBytes * kPixelBytes;
  const int range = static_cast<int>(blockIdx.x), ranges = static_cast<int>(gridDim.x);
  const int all = p.tiles.count * p.gradients, tap = static_cast<int>(threadIdx.x) / 32;
  const int begin = range_begin(range, ranges, all), end = range_begin(range + 1, ranges, all);
  const auto bring = [&](int i) {
    if (i < end) copy_tile(p, stages + (i - begin) % kStages * kStageBytes, i);
    mma::commit_copies();
  };
  bring(begin);
  for (int i = begin; i < end;) {
    const int gradient = i / p.tiles.count, stop = min(end, (gradient + 1) * p.tiles.count);
    Sums d = {};
    for (; i < stop; ++i) {
      mma::wait_copies<0>();
      __syncthreads();  // the tile is there for all, and the place of the one before is free
      bring(i + 1);
      const std::uint32_t stage = stages + (i - begin) % kStages * kStageBytes;
      multiply_pixels<T>(d, stage, stage + kBoxBytes, tap / 3 * kRim + tap % 3);
    }
    write_sums(d, part_of(p.parts, range, gradient), tap);
  }
}

}  // namespace
}  // namespace conv

void warp::conv_weight_gradients(ElementType element, std::span<const ConvWeightGradient> gradients, void* workspace,
                                 CUstream_st* stream) {
  using namespace conv;
  if (gradients.empty()) return;
  require_gradients(gradients);
  const int count = static_cast<int>(gradients.size());
  WarpGradientParams params{.pictures = {},
                            .tiles = Tiles(gradients.front().x),
                            .gradients = count,
                            .parts = static_cast<float4*>(workspace)};
  for (int i = 0; i < count; ++i) {
    const ConvWeightGradient& g = gradients[static_cast<std::size_t>(i)];
    params.pictures[i] = {g.x, g.dz};
  }
  const int ranges = std::min(params.tiles.count * count, multiprocessors());
  const auto kernel = with_type(element, [](auto type) { return warp_gradient_kernel<typename decltype(type)::type>; });
  launch(kernel, "conv_weight_gradients", dim3(static_cast<unsigned>(ranges)), kThreads, kSharedBytes, params, stream);
  add_parts(gradients, params.parts, ranges, params.tiles.count, stream);
}

}  // namespace reelgrad::cuda
