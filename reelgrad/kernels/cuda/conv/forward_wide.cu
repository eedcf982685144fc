// Forward, from more than 64 input channels: weights do not fit beside the tiles and pass through, a row of taps of 64
// channels at a time. Two warpgroups use each of them, for a tile each; the two drift apart by as much as lies ready,
// so that one multiplies on while the other ends its tile.
#include <algorithm>

#include "reelgrad/kernels/cuda/conv/forward.h"
#include "reelgrad/kernels/cuda/conv/multiply.h"

namespace reelgrad::cuda::conv {
namespace {

constexpr int kThreads = 3 * kWarpgroup;
constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;
constexpr int kBuffers = 3, kStages = 3;  // of pixels; of weights
constexpr int kRowBytes = 3 * kTapBytes;  // weights of a row of taps
constexpr int kPair = 2;                  // tiles at a time
constexpr int kSharedBytes = kSwizzleBytes + kStages * kRowBytes + kBuffers * kRimBuffer + 128;

struct Shared {
  std::uint32_t weights, buffers, full, empty, weights_full, weights_empty, residual_is_there;

  __device__ explicit Shared(const void* bytes) {
    weights = (ptx::shared_address(bytes) + kSwizzleBytes - 1) / kSwizzleBytes * kSwizzleBytes;
    buffers = weights + kStages * kRowBytes;
    full = buffers + kBuffers * kRimBuffer;
    empty = full + 8 * kBuffers;
    weights_full = empty + 8 * kBuffers;
    weights_empty = weights_full + 8 * kStages;
    residual_is_there = weights_empty + 8 * kStages;  // one a consumer
  }
};

// A block's share of the work: pairs of tiles, of one block of output channels.
struct Share {
  int block, first, stride, pairs;

  __device__ explicit Share(const ForwardParams& p)
      : block(static_cast<int>(blockIdx.x) % p.blocks),
        first(static_cast<int>(blockIdx.x) / p.blocks),
        stride(static_cast<int>(gridDim.x) / p.blocks),
        pairs((p.tiles.count + kPair - 1) / kPair) {}
};

// Of an odd number of tiles the last one is made twice.
__device__ __forceinline__ TileGrid::Tile tile_of(const ForwardParams& p, int pair, int which) {
  return p.tiles.at(min(pair * kPair + which, p.tiles.count - 1));
}

__device__ void bring_pixels(const ForwardParams& p, const Shared& shared, const Share& share) {
  int turn = 0;
  for (int pair = share.first; pair < share.pairs; pair += share.stride)
    for (int in_block = 0; in_block < p.in_blocks; ++in_block)
      for (int which = 0; which < kPair; ++which, ++turn) {
        const int buffer = turn % kBuffers;
        if (turn >= kBuffers) ptx::barrier_wait(shared.empty + 8 * buffer, turn / kBuffers % 2 ^ 1);
        const TileGrid::Tile tile = tile_of(p, pair, which);
        ptx::barrier_expect(shared.full + 8 * buffer, kRimBytes);
        ptx::load_box(shared.buffers + buffer * kRimBuffer, p.x, shared.full + 8 * buffer, in_block * kConvBlock,
                      tile.x - 1, tile.y - 1, tile.n);
      }
}

__device__ void bring_weights(const ForwardParams& p, const Shared& shared, const Share& share) {
  const int rows = 3 * p.in_blocks;
  const std::byte* const weights = p.packed + static_cast<std::int64_t>(share.block) * rows * kRowBytes;
  int turn = 0;
  for (int pair = share.first; pair < share.pairs; pair += share.stride)
    for (int row = 0; row < rows; ++row, ++turn) {
      const int stage = turn % kStages;
      if (turn >= kStages) ptx::barrier_wait(shared.weights_empty + 8 * stage, turn / kStages % 2 ^ 1);
      ptx::barrier_expect(shared.weights_full + 8 * stage, kRowBytes);
      ptx::load_bytes(shared.weights + stage * kRowBytes, weights + row * kRowBytes, kRowBytes,
                      shared.weights_full + 8 * stage);
    }
}

// A row of taps of one block of input channels.
template <class T, int kSteps>
__device__ __forceinline__ void multiply_row(float (&d)[128], std::uint32_t weights, std::uint32_t pixels, bool add) {
  wgmma::begin();
  multiply_taps<T, 3, kSteps>(d, weights, pixels, add);
  wgmma::commit();
}

// kLast: instructions a tap for the last block of input channels.
template <class T, int kLast>
__device__ void convolve(const ForwardParams& p, const Shared& shared, const Share& share) {
  const int me = static_cast<int>(threadIdx.x) / kWarpgroup - 1;
  const bool speaks = threadIdx.x % kWarpgroup == 0;
  const Ending ending = ending_of(p, share.block, 1 + me, shared.residual_is_there + 8 * me);
  constexpr int kAll = kConvBlock / kStepChannels;
  float d[128];
  int row_turn = 0, turn = me, tile_turn = 0;
  for (int pair = share.first; pair < share.pairs; pair += share.stride, ++tile_turn) {
    for (int in_block = 0; in_block < p.in_blocks; ++in_block, turn += kPair) {
      const int buffer = turn % kBuffers;
      const std::uint32_t pixels = shared.buffers + buffer * kRimBuffer;
      ptx::barrier_wait(shared.full + 8 * buffer, turn / kBuffers % 2);
      const bool last = in_block + 1 == p.in_blocks;
#pragma unroll 1
      for (int row = 0; row < 3; ++row, ++row_turn) {
        const int stage = row_turn % kStages;
        const std::uint32_t weights = shared.weights + stage * kRowBytes, from = pixels + row * kRimRowBytes;
        ptx::barrier_wait(shared.weights_full + 8 * stage, row_turn / kStages % 2);
        if (kLast < kAll && last)
          multiply_row<T, kLast>(d, weights, from, true);
        else
          multiply_row<T, kAll>(d, weights, from, in_block + row > 0);
        wgmma::finish(d);
        if (speaks) ptx::barrier_arrive(shared.weights_empty + 8 * stage);
      }
      if (last) finish_tile<T>(p, d, ending, pixels, tile_of(p, pair, me), tile_turn);
      if (speaks) ptx::barrier_arrive(shared.empty + 8 * buffer);
    }
  }
  if (speaks) ptx::wait_stores_done();
}

template <class T, int kLast>
__global__ void __launch_bounds__(kThreads, 1) wide_kernel(const __grid_constant__ ForwardParams p) {
  extern __shared__ std::uint8_t shared_bytes[];
  const Shared shared(shared_bytes);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kBuffers; ++i) {
      ptx::barrier_init(shared.full + 8 * i, 1);
      ptx::barrier_init(shared.empty + 8 * i, 1);
    }
    for (int i = 0; i < kStages; ++i) {
      ptx::barrier_init(shared.weights_full + 8 * i, 1);
      ptx::barrier_init(shared.weights_empty + 8 * i, kPair);
    }
    for (int i = 0; i < kPair; ++i) ptx::barrier_init(shared.residual_is_there + 8 * i, 1);
    ptx::barrier_init_done();
  }
  __syncthreads();
  ptx::wait_for_earlier_kernels();
  const Share share(p);
  if (threadIdx.x / kWarpgroup == 0) {
    ptx::give_registers<kProducerRegisters>();
    constexpr int kWeightThread = 32;  // of another warp: neither waits for the other's places
    if (threadIdx.x == 0) bring_pixels(p, shared, share);
    if (threadIdx.x == kWeightThread) bring_weights(p, shared, share);
  } else {
    ptx::take_registers<kConsumerRegisters>();
    convolve<T, kLast>(p, shared, share);
  }
}

}  // namespace

void launch_wide_forward(ElementType element, int in, const ForwardParams& params, CUstream_st* stream) {
  const int pairs = (params.tiles.count + kPair - 1) / kPair;
  const int grid = std::max(1, std::min(pairs, multiprocessors() / params.blocks)) * params.blocks;
  constexpr int kHalf = kConvBlock / 2;
  const bool half = (in - 1) % kConvBlock < kHalf;  // of the last block of input channels
  const auto kernel = with_type(element, [&](auto type) {
    using T = typename decltype(type)::type;
    return half ? wide_kernel<T, kHalf / kStepChannels> : wide_kernel<T, kConvBlock / kStepChannels>;
  });
  launch(kernel, "conv3x3", dim3(static_cast<unsigned>(grid)), kThreads, kSharedBytes, params, stream);
}

}  // namespace reelgrad::cuda::conv
