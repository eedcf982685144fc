// One block a multiprocessor. A producer thread brings tiles; two warpgroups take them in turns, so that one multiplies
// while the other rounds and stores. Output channels are the rows of the tensor cores' result and pixels its columns.
// The result goes back to where the tile's input was, and from there to memory.
#include <algorithm>

#include "reelgrad/kernels/cuda/conv/forward.h"
#include "reelgrad/kernels/cuda/conv/launch.h"
#include "reelgrad/kernels/cuda/conv/multiply.h"
#include "reelgrad/kernels/cuda/conv/tile.h"

namespace reelgrad::cuda {
namespace conv {
namespace {

constexpr int kBuffers = 3;  // tiles under way: with two, loads are waited for
constexpr int kThreads = 3 * kWarpgroup;
constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;  // of 168 at the start
constexpr int kSharedBytes = kSwizzleBytes + kWeightBytes + kBuffers * kRimBuffer + 128;

// Named barriers: whose turn it is to multiply; a warpgroup among itself.
constexpr int kTurn = 1, kAmong = 3;

template <class T, int kSteps>
__global__ void __launch_bounds__(kThreads, 1) forward_kernel(const __grid_constant__ ForwardParams p) {
  extern __shared__ std::uint8_t shared_bytes[];
  const std::uint32_t weights = (ptx::shared_address(shared_bytes) + kSwizzleBytes - 1) / kSwizzleBytes * kSwizzleBytes;
  const std::uint32_t buffers = weights + kWeightBytes, barriers = buffers + kBuffers * kRimBuffer;
  const std::uint32_t full = barriers, empty = full + 8 * kBuffers, weights_full = empty + 8 * kBuffers;
  const std::uint32_t residual_is_there = weights_full + 8;  // one a consumer
  const int group = threadIdx.x / kWarpgroup, thread = threadIdx.x % kWarpgroup;
  const int block = static_cast<int>(blockIdx.x) % p.blocks;
  const int first = static_cast<int>(blockIdx.x) / p.blocks, stride = static_cast<int>(gridDim.x) / p.blocks;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kBuffers; ++i) {
      ptx::barrier_init(full + 8 * i, 1);
      ptx::barrier_init(empty + 8 * i, 1);
    }
    ptx::barrier_init(weights_full, 1);
    for (int i = 0; i < 2; ++i) ptx::barrier_init(residual_is_there + 8 * i, 1);
    ptx::barrier_init_done();
  }
  __syncthreads();
  ptx::wait_for_earlier_kernels();

  if (group == 0) {
    ptx::give_registers<kProducerRegisters>();
    if (threadIdx.x != 0) return;
    ptx::barrier_expect(weights_full, kWeightBytes);
    ptx::load_bytes(weights, p.packed + block * kWeightBytes, kWeightBytes, weights_full);
    int turn = 0;
    for (int i = first; i < p.tiles.count; i += stride, ++turn) {
      const int buffer = turn % kBuffers;
      if (turn >= kBuffers) ptx::barrier_wait(empty + 8 * buffer, turn / kBuffers % 2 ^ 1);
      const TileGrid::Tile tile = p.tiles.at(i);
      ptx::barrier_expect(full + 8 * buffer, kRimBytes);
      ptx::load_box(buffers + buffer * kRimBuffer, p.x, full + 8 * buffer, 0, tile.x - 1, tile.y - 1, tile.n);
    }
    return;
  }

  ptx::take_registers<kConsumerRegisters>();
  const int me = group - 1;
  const Ending ending = ending_of(p, block, kAmong + me, residual_is_there + 8 * me);
  float d[128];
  ptx::barrier_wait(weights_full, 0);
  int turn = 0;
  for (int i = first; i < p.tiles.count; i += stride, ++turn) {
    if (turn % 2 != me) continue;
    const int buffer = turn % kBuffers;
    const std::uint32_t input = buffers + buffer * kRimBuffer;
    ptx::barrier_wait(full + 8 * buffer, turn / kBuffers % 2);
    if (turn > 0) ptx::sync(kTurn + me, 2 * kWarpgroup);
    multiply_tile<T, kSteps>(d, weights, input);
    ptx::arrive(kTurn + (me ^ 1), 2 * kWarpgroup);
    wgmma::finish(d);
    finish_tile<T>(p, d, ending, input, p.tiles.at(i), turn / 2);
    if (thread == 0) ptx::barrier_arrive(empty + 8 * buffer);
  }
  if (thread == 0) ptx::wait_stores_done();
}

}  // namespace

void launch_forward(ElementType element, int in, const ForwardParams& params, CUstream_st* stream) {
  const int grid = std::max(1, std::min(params.tiles.count, multiprocessors() / params.blocks)) * params.blocks;
  const auto kernel = with_type(element, [&](auto type) {
    return with_steps(in, [](auto steps) { return forward_kernel<typename decltype(type)::type, steps>; });
  });
  launch(kernel, "conv3x3", dim3(static_cast<unsigned>(grid)), kThreads, kSharedBytes, params, stream);
}

}  // namespace conv

void conv3x3(const ConvForward& c, CUstream_st* stream) {
  using namespace conv;
  if (c.x.channels > kConvMostIn) fail("conv3x3: " + std::to_string(c.x.channels) + " input channels, at most 192");
  if (is_empty(c.x)) return;
  if (c.residual.data != nullptr && c.activation != ConvActivation::none)
    fail("conv3x3: a residual is added to what has no activation");
  ForwardParams params{};
  params.x = rim_map(c.x, c.element);
  params.y = tile_map(c.y, c.element);
  params.keep_z = c.z.data != nullptr;
  params.z = params.keep_z ? tile_map(c.z, c.element) : params.y;
  params.tiles = tile_grid(c.x);
  params.packed = static_cast<const std::byte*>(c.packed);
  params.blocks = conv_blocks(c.y.channels, kConvBlock);
  params.in_blocks = conv_blocks(c.x.channels, kConvBlock);
  params.bias = reinterpret_cast<const float*>(params.packed + params.blocks * params.in_blocks * kWeightBytes);
  params.activation = c.activation;
  params.adds = c.residual.data != nullptr;
  params.residual = params.adds ? tile_map(c.residual, c.element) : params.y;
  params.factor = c.factor;
  const auto launch_it = params.in_blocks == 1 ? launch_forward : launch_wide_forward;
  launch_it(c.element, c.x.channels, params, stream);
}

}  // namespace reelgrad::cuda
