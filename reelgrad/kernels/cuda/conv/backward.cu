// Gradients through a convolution to what its input's activation took: the forward kernel's multiplication with the
// weights turned round, then times the activation's derivative. The activation's argument comes into a place of its
// own, where the result takes its place. On the way each thread adds up its channels' bias and slope gradients.
#include <algorithm>

#include "reelgrad/kernels/cuda/conv/activation.h"
#include "reelgrad/kernels/cuda/conv/launch.h"
#include "reelgrad/kernels/cuda/conv/multiply.h"
#include "reelgrad/kernels/cuda/conv/tile.h"

namespace reelgrad::cuda {
namespace conv {
namespace {

constexpr int kBuffers = 2, kThreads = 3 * kWarpgroup;  // a buffer and a place a consumer
constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;
constexpr int kSharedBytes = kSwizzleBytes + kWeightBytes + kBuffers * (kRimBuffer + kTileBytes) + 128;
constexpr int kTurn = 1, kAmong = 3;  // named barriers

struct BackwardParams {
  CUtensorMap dz, z_below, dz_below;
  TileGrid tiles;
  const std::byte* packed;
  const float* slopes;
  ConvActivation activation;
  bool has_z;
  float* sums;
};

struct Sums {
  float2 bias{0, 0}, slope{0, 0};  // of channels c and c + 8
};

// The gradient of what `Function` took, from its argument in `place`, there; adds to `sums`.
template <class T, class Function>
__device__ __forceinline__ void write_gradient(const float (&d)[128], std::uint32_t place, float2 slope, bool has_z,
                                               Sums& sums, Function) {
#pragma unroll
  for (int j = 0; j < kFragments; ++j) {
    const std::uint32_t fragment = place + j * kFragmentPixels * kPixelBytes;
    std::uint32_t z[4] = {}, out[4];
    if (has_z) ptx::load_transposed(fragment, z);
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const float2 v = parted<T>(z[q]);
      const float g0 = d[8 * j + 2 * q], g1 = d[8 * j + 2 * q + 1], s = q % 2 == 0 ? slope.x : slope.y;
      const float r0 = g0 * Function::derivative(v.x, s), r1 = g1 * Function::derivative(v.y, s);
      out[q] = joined<T>(r0, r1);
      (q % 2 == 0 ? sums.bias.x : sums.bias.y) += r0 + r1;
      if constexpr (std::is_same_v<Function, Slope>)
        (q % 2 == 0 ? sums.slope.x : sums.slope.y) += (v.x > 0 ? 0.f : g0 * v.x) + (v.y > 0 ? 0.f : g1 * v.y);
    }
    ptx::store_transposed(fragment, out);
  }
}

// Pixels outside of the picture have gradients too, which are none: they must not be added up.
__device__ __forceinline__ void clear_outside(float (&d)[128], const TileGrid& tiles, const TileGrid::Tile& tile) {
  const int x = tile.x + static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int row = 0; row < kTileHeight; ++row) {
    const bool inside = tile.y + row < tiles.height;
    if (!inside || x >= tiles.width) d[4 * row] = d[4 * row + 2] = 0;
    if (!inside || x + 1 >= tiles.width) d[4 * row + 1] = d[4 * row + 3] = 0;
  }
}

// Of the four threads that hold the same channels.
__device__ __forceinline__ float sum_of_four(float v) {
  v += __shfl_xor_sync(0xffffffffu, v, 1);
  return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

template <class T, int kSteps>
__global__ void __launch_bounds__(kThreads, 1) backward_kernel(const __grid_constant__ BackwardParams p) {
  extern __shared__ std::uint8_t shared_bytes[];
  const std::uint32_t weights = (ptx::shared_address(shared_bytes) + kSwizzleBytes - 1) / kSwizzleBytes * kSwizzleBytes;
  const std::uint32_t buffers = weights + kWeightBytes, places = buffers + kBuffers * kRimBuffer;
  const std::uint32_t full = places + kBuffers * kTileBytes, empty = full + 8 * kBuffers;
  const std::uint32_t z_full = empty + 8 * kBuffers, z_empty = z_full + 8 * kBuffers;
  const std::uint32_t weights_full = z_empty + 8 * kBuffers;
  const int group = threadIdx.x / kWarpgroup, thread = threadIdx.x % kWarpgroup;
  const int first = static_cast<int>(blockIdx.x), stride = static_cast<int>(gridDim.x);
  if (threadIdx.x == 0) {
    for (int i = 0; i < 4 * kBuffers; ++i) ptx::barrier_init(full + 8 * i, 1);
    ptx::barrier_init(weights_full, 1);
    ptx::barrier_init_done();
  }
  __syncthreads();
  ptx::wait_for_earlier_kernels();

  if (group == 0) {
    ptx::give_registers<kProducerRegisters>();
    constexpr int kZThread = 32;  // of another warp, so that neither load waits for the other's place
    if (threadIdx.x != 0 && threadIdx.x != kZThread) return;
    if (threadIdx.x == kZThread && !p.has_z) return;
    if (threadIdx.x == 0) {
      ptx::barrier_expect(weights_full, kWeightBytes);
      ptx::load_bytes(weights, p.packed, kWeightBytes, weights_full);
    }
    int turn = 0;
    for (int i = first; i < p.tiles.count; i += stride, ++turn) {
      const int buffer = turn % kBuffers, phase = turn / kBuffers % 2;
      const TileGrid::Tile tile = p.tiles.at(i);
      if (threadIdx.x == 0) {
        if (turn >= kBuffers) ptx::barrier_wait(empty + 8 * buffer, phase ^ 1);
        ptx::barrier_expect(full + 8 * buffer, kRimBytes);
        ptx::load_box(buffers + buffer * kRimBuffer, p.dz, full + 8 * buffer, 0, tile.x - 1, tile.y - 1, tile.n);
      } else {
        if (turn >= kBuffers) ptx::barrier_wait(z_empty + 8 * buffer, phase ^ 1);
        ptx::barrier_expect(z_full + 8 * buffer, kTileBytes);
        ptx::load_box(places + buffer * kTileBytes, p.z_below, z_full + 8 * buffer, 0, tile.x, tile.y, tile.n);
      }
    }
    return;
  }

  ptx::take_registers<kConsumerRegisters>();
  const int me = group - 1;
  const int channel = thread / 32 * 16 + thread % 32 / 4;  // and the one 8 above
  const float2 slope{p.slopes[channel], p.slopes[channel + 8]};
  const std::uint32_t input = buffers + me * kRimBuffer, place = places + me * kTileBytes;
  const std::uint32_t mine = place + fragment_offset(thread);
  Sums sums;
  float d[128];
  ptx::barrier_wait(weights_full, 0);
  int turn = 0;
  for (int i = first; i < p.tiles.count; i += stride, ++turn) {
    if (turn % 2 != me) continue;
    const int phase = turn / kBuffers % 2;
    ptx::barrier_wait(full + 8 * me, phase);
    if (turn > 0) ptx::sync(kTurn + me, 2 * kWarpgroup);
    multiply_tile<T, kSteps>(d, weights, input);
    ptx::arrive(kTurn + (me ^ 1), 2 * kWarpgroup);
    wgmma::finish(d);
    ptx::sync(kAmong + me, kWarpgroup);  // all four warps have read the input
    if (thread == 0) ptx::barrier_arrive(empty + 8 * me);
    const TileGrid::Tile tile = p.tiles.at(i);
    if (p.tiles.reaches_out(tile)) clear_outside(d, p.tiles, tile);
    if (p.has_z) ptx::barrier_wait(z_full + 8 * me, phase);
    __syncwarp();
    with_activation(p.activation, [&](auto function) { write_gradient<T>(d, mine, slope, p.has_z, sums, function); });
    ptx::fence_shared();
    ptx::sync(kAmong + me, kWarpgroup);
    if (thread == 0) {
      ptx::store_box(p.dz_below, place, 0, tile.x, tile.y, tile.n);
      ptx::wait_stores_read();
      ptx::barrier_arrive(z_empty + 8 * me);
    }
    if (!p.has_z) ptx::sync(kAmong + me, kWarpgroup);  // no load waits for the place to be free: the next tile does
  }
  if (thread == 0) ptx::wait_stores_done();
  if (p.sums == nullptr) return;
  float* const row = p.sums + (blockIdx.x * 2 + me) * kConvSumRow;
  const float totals[4] = {sum_of_four(sums.bias.x), sum_of_four(sums.bias.y), sum_of_four(sums.slope.x),
                           sum_of_four(sums.slope.y)};
  if (thread % 4 != 0) return;
  row[channel] = totals[0];
  row[channel + 8] = totals[1];
  row[kConvBlock + channel] = totals[2];
  row[kConvBlock + channel + 8] = totals[3];
}

}  // namespace
}  // namespace conv

int conv_sum_rows(const ConvPicture& picture) {
  return 2 * std::min(conv::tile_grid(picture).count, conv::multiprocessors());
}

void conv3x3_backward(const ConvBackward& c, CUstream_st* stream) {
  using namespace conv;
  require_channels("conv3x3_backward", c.dz.channels, c.dz_below.channels);
  if (is_empty(c.dz)) return;
  BackwardParams params{};
  params.dz = rim_map(c.dz, c.element);
  params.dz_below = tile_map(c.dz_below, c.element);
  params.has_z = c.z_below.data != nullptr;
  params.z_below = params.has_z ? tile_map(c.z_below, c.element) : params.dz_below;
  params.tiles = tile_grid(c.dz);
  params.packed = static_cast<const std::byte*>(c.packed);
  params.slopes = reinterpret_cast<const float*>(params.packed + kWeightBytes) + kConvBlock;
  params.activation = params.has_z ? c.activation : ConvActivation::none;
  params.sums = c.sums;
  const auto kernel = with_type(c.element, [&](auto type) {
    return with_steps(c.dz.channels, [](auto steps) { return backward_kernel<typename decltype(type)::type, steps>; });
  });
  launch(kernel, "conv3x3_backward", dim3(static_cast<unsigned>(conv_sum_rows(c.dz) / 2)), kThreads, kSharedBytes,
         params, stream);
}

}  // namespace reelgrad::cuda
