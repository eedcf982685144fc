// The last convolution of a network: few output channels, put to their pixels and added to the input. Pixels are the
// rows of the tensor cores' result, 64 an instruction, so that few channels make small instructions.
#include <algorithm>

#include "reelgrad/kernels/cuda/conv/elements.h"
#include "reelgrad/kernels/cuda/conv/launch.h"
#include "reelgrad/kernels/cuda/conv/multiply.h"
#include "reelgrad/kernels/cuda/conv/tile.h"

namespace reelgrad::cuda {
namespace conv {
namespace {

constexpr int kBuffers = 3;
constexpr int kThreads = 3 * kWarpgroup;
constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;
constexpr int kSteps = 4;                                       // all 64 channels: those that are missing are zeros
constexpr int kPartRows = 8, kParts = kTileHeight / kPartRows;  // of 8 × 8 pixels, one instruction's rows

struct ShuffledParams {
  CUtensorMap x;
  TileGrid tiles;
  const std::byte* packed;
  const float* bias;
  int out, scale;
  ConvTensor skip, y;
  bool pairs;  // two neighbours of a row can be written at once
};

__host__ __device__ constexpr int weight_bytes(int out) {
  return kTaps * out * kPixelBytes;
}

constexpr int shared_bytes(int out) {
  return kSwizzleBytes + (weight_bytes(out) + kSwizzleBytes - 1) / kSwizzleBytes * kSwizzleBytes +
         kBuffers * kRimBuffer + 128;
}

// What one thread writes: of each group of 8 values two neighbours, `skip` and `y` their places from a pixel's first.
template <int kOut>
struct Places {
  std::int64_t skip[kOut / 8], y[kOut / 8][2];

  __device__ Places(const ShuffledParams& p, int column) {
    const int s = p.scale;
#pragma unroll
    for (int j = 0; j < kOut / 8; ++j) {
      skip[j] = (8 * j + column) / (s * s) * p.skip.channel_step;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int o = 8 * j + column + e, c = o / (s * s), sub = o % (s * s);
        y[j][e] = c * p.y.channel_step + sub / s * p.y.row_step + sub % s * p.y.column_step;
      }
    }
  }
};

// The rows of a tile that thread `thread` holds, by part and half.
__device__ __forceinline__ int row_of(int thread, int part, int half) {
  return part * kPartRows + 2 * (thread / 32) + half;
}

// Added to both neighbours: they belong to one channel (of an even scale). Read while the tensor cores work.
template <int kOut>
struct Skips {
  float value[kParts][2][kOut / 8];

  template <class Element>
  __device__ void load_as(const ShuffledParams& p, const Places<kOut>& places, const Element* picture, int column,
                          int y, int x, int thread) {
    const bool inside = x < p.tiles.width;
#pragma unroll
    for (int part = 0; part < kParts; ++part)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int j = 0; j < kOut / 8; ++j) {
          const int row = y + row_of(thread, part, half);
          const bool used = inside && row < p.tiles.height && 8 * j + column < p.out;
          value[part][half][j] =
              used ? static_cast<float>(picture[row * p.skip.row_step + x * p.skip.column_step + places.skip[j]]) : 0.f;
        }
  }

  __device__ void load(const ShuffledParams& p, const Places<kOut>& places, int column, int n, int y, int x,
                       int thread) {
    const std::int64_t image = n * p.skip.image_step;
    switch (p.skip.element) {
      case ElementType::f32:
        return load_as(p, places, static_cast<const float*>(p.skip.data) + image, column, y, x, thread);
      case ElementType::f16:
        return load_as(p, places, static_cast<const __half*>(p.skip.data) + image, column, y, x, thread);
      case ElementType::bf16:
        return load_as(p, places, static_cast<const __nv_bfloat16*>(p.skip.data) + image, column, y, x, thread);
    }
  }
};

// The values of one row of a tile, as a pixel's of `y`.
template <int kOut>
__device__ __forceinline__ void write_pairs(const ShuffledParams& p, const Places<kOut>& places, std::int64_t pixel,
                                            int column, const float2 (&value)[kOut / 8]) {
#pragma unroll
  for (int j = 0; j < kOut / 8; ++j)
    if (8 * j + column < p.out) store_pair(p.y.data, p.y.element, pixel + places.y[j][0], value[j].x, value[j].y);
}

template <int kOut>
__device__ __forceinline__ void write_singly(const ShuffledParams& p, const Places<kOut>& places, std::int64_t pixel,
                                             std::int64_t skip_pixel, int column, const float2 (&value)[kOut / 8]) {
#pragma unroll
  for (int j = 0; j < kOut / 8; ++j)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int o = 8 * j + column + e;
      if (o >= p.out) continue;
      float v = e == 0 ? value[j].x : value[j].y;
      if (p.skip.data != nullptr)
        v += load(p.skip.data, p.skip.element, skip_pixel + o / (p.scale * p.scale) * p.skip.channel_step);
      store(p.y.data, p.y.element, pixel + places.y[j][e], v);
    }
}

template <class T, int kOut>
__device__ __forceinline__ void convolve(float (&d)[kParts][kOut / 2], std::uint32_t weights, std::uint32_t input) {
  wgmma::begin();
#pragma unroll
  for (int tap = 0; tap < kTaps; ++tap) {
    const std::uint32_t pixel = input + (tap / 3 * kRimWidth + tap % 3) * kPixelBytes;
#pragma unroll
    for (int k = 0; k < kSteps; ++k)
#pragma unroll
      for (int part = 0; part < kParts; ++part)
        wgmma::multiply<T>(
            d[part],
            wgmma::matrix(pixel, kRimRowBytes) + wgmma::moved(part * kPartRows * kRimRowBytes + k * kStepBytes),
            wgmma::matrix(weights + tap * kOut * kPixelBytes, 8 * kPixelBytes) + wgmma::moved(k * kStepBytes),
            tap + k > 0);
  }
  wgmma::commit();
}

template <class T, int kOut>
__global__ void __launch_bounds__(kThreads, 1) shuffled_kernel(const __grid_constant__ ShuffledParams p) {
  extern __shared__ std::uint8_t shared[];
  const std::uint32_t weights = (ptx::shared_address(shared) + kSwizzleBytes - 1) / kSwizzleBytes * kSwizzleBytes;
  const std::uint32_t buffers = weights + (weight_bytes(kOut) + kSwizzleBytes - 1) / kSwizzleBytes * kSwizzleBytes;
  const std::uint32_t full = buffers + kBuffers * kRimBuffer, empty = full + 8 * kBuffers;
  const std::uint32_t weights_full = empty + 8 * kBuffers;
  const int group = threadIdx.x / kWarpgroup, thread = threadIdx.x % kWarpgroup;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kBuffers; ++i) {
      ptx::barrier_init(full + 8 * i, 1);
      ptx::barrier_init(empty + 8 * i, kWarpgroup);
    }
    ptx::barrier_init(weights_full, 1);
    ptx::barrier_init_done();
  }
  __syncthreads();
  ptx::wait_for_earlier_kernels();
  const int first = static_cast<int>(blockIdx.x), stride = static_cast<int>(gridDim.x);

  if (group == 0) {
    ptx::give_registers<kProducerRegisters>();
    if (threadIdx.x != 0) return;
    ptx::barrier_expect(weights_full, weight_bytes(kOut));
    ptx::load_bytes(weights, p.packed, weight_bytes(kOut), weights_full);
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
  const int me = group - 1, column = thread % 4 * 2;
  float2 bias[kOut / 8];
#pragma unroll
  for (int j = 0; j < kOut / 8; ++j) bias[j] = {p.bias[8 * j + column], p.bias[8 * j + column + 1]};
  const Places<kOut> places(p, column);
  ptx::barrier_wait(weights_full, 0);
  int turn = 0;
  for (int i = first; i < p.tiles.count; i += stride, ++turn) {
    if (turn % 2 != me) continue;
    const int buffer = turn % kBuffers;
    const TileGrid::Tile tile = p.tiles.at(i);
    const int x = tile.x + thread % 32 / 4;
    ptx::barrier_wait(full + 8 * buffer, turn / kBuffers % 2);
    float d[kParts][kOut / 2];
    convolve<T, kOut>(d, weights, buffers + buffer * kRimBuffer);
    Skips<kOut> skips{};
    if (p.pairs && p.skip.data != nullptr) skips.load(p, places, column, tile.n, tile.y, x, thread);
#pragma unroll
    for (int part = 0; part < kParts; ++part) wgmma::finish(d[part]);
    ptx::barrier_arrive(empty + 8 * buffer);
    if (x >= p.tiles.width) continue;
#pragma unroll
    for (int part = 0; part < kParts; ++part)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int y = tile.y + row_of(thread, part, half);
        if (y >= p.tiles.height) continue;
        float2 value[kOut / 8];
#pragma unroll
        for (int j = 0; j < kOut / 8; ++j) {
          const float skip = skips.value[part][half][j];
          value[j] = {d[part][4 * j + 2 * half] + bias[j].x + skip, d[part][4 * j + 2 * half + 1] + bias[j].y + skip};
        }
        const std::int64_t pixel = tile.n * p.y.image_step + std::int64_t{y} * p.scale * p.y.row_step +
                                   std::int64_t{x} * p.scale * p.y.column_step;
        if (p.pairs)
          write_pairs<kOut>(p, places, pixel, column, value);
        else
          write_singly<kOut>(p, places, pixel,
                             tile.n * p.skip.image_step + y * p.skip.row_step + x * p.skip.column_step, column, value);
      }
  }
}

template <class T>
auto kernel_for(int block) {
  if (block == 16) return shuffled_kernel<T, 16>;
  return block == 32 ? shuffled_kernel<T, 32> : shuffled_kernel<T, 48>;
}

bool pairs_fit(const ConvShuffled& c) {
  const auto even = [](std::int64_t step) { return step % 2 == 0; };
  return c.scale % 2 == 0 && c.out % 2 == 0 && c.y.column_step == 1 && even(c.y.row_step) && even(c.y.channel_step) &&
         even(c.y.image_step) && reinterpret_cast<std::uintptr_t>(c.y.data) % (2 * element_bytes(c.y.element)) == 0;
}

}  // namespace
}  // namespace conv

void conv3x3_shuffled(const ConvShuffled& c, CUstream_st* stream) {
  using namespace conv;
  if (c.out > kConvMostShuffled || c.x.channels > kConvBlock)
    fail("conv3x3_shuffled: " + std::to_string(c.x.channels) + " to " + std::to_string(c.out) +
         " channels, at most 64 to 48");
  if (is_empty(c.x)) return;
  const int block = conv_block_of_shuffled(c.out);
  ShuffledParams params{};
  params.x = rim_map(c.x, c.element);
  params.tiles = tile_grid(c.x);
  params.packed = static_cast<const std::byte*>(c.packed);
  params.out = c.out;
  params.scale = c.scale;
  params.skip = c.skip;
  params.y = c.y;
  params.pairs = pairs_fit(c);
  params.bias = reinterpret_cast<const float*>(params.packed + weight_bytes(block));
  const auto kernel = with_type(c.element, [&](auto type) { return kernel_for<typename decltype(type)::type>(block); });
  launch(kernel, "conv3x3_shuffled", dim3(static_cast<unsigned>(std::min(params.tiles.count, multiprocessors()))),
         kThreads, shared_bytes(block), params, stream);
}

}  // namespace reelgrad::cuda
