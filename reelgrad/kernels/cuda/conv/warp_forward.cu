// Forward for cards from compute capability 8.0 on. A block makes 16 × 16 pixels of 64 output channels: its four warps
// four rows each, all channels. Pixels are the rows of the results, so that a thread's values are neighbouring
// channels. The tile's rim comes once for 64 input channels; the taps' weights pass through three places, two on their
// way while one is used. Two blocks a multiprocessor: one loads or stores while the other multiplies.
#include "reelgrad/kernels/cuda/conv/activation.h"
#include "reelgrad/kernels/cuda/conv/launch.h"
#include "reelgrad/kernels/cuda/conv/multiply.h"
#include "reelgrad/kernels/cuda/conv/warp_tile.h"

namespace reelgrad::cuda {
namespace conv {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * 32, kBlocksEach = 2;  // a multiprocessor
constexpr int kWidth = kMatrixRows, kHeight = 16, kWarpRows = kHeight / kWarps;
constexpr int kRim = kWidth + 2, kRimTall = kHeight + 2, kBoxBytes = kRim * kRimTall * kPixelBytes;
constexpr int kPlaces = 3;                                    // of weights
constexpr int kColumns = kConvBlock / 8;                      // results of 8 channels
constexpr int kWarpBytes = kWarpRows * kWidth * kPixelBytes;  // of a warp's results
constexpr int kSharedBytes = kSwizzleBytes + kBoxBytes + kPlaces * kTapBytes;
static_assert(kWarps * kWarpBytes <= kBoxBytes, "results take the place of the pixels");

using Tiles = WarpTiles<kWidth, kHeight>;
using Results = float[kWarpRows][kColumns][4];

struct WarpForwardParams {
  ConvPicture x, y, z, residual;
  Tiles tiles;
  const std::byte* packed;
  const float* bias;      // then the slopes
  int blocks, in_blocks;  // of 64 channels
  ConvActivation activation;
  float factor;
};

__device__ __forceinline__ void copy_weights(std::uint32_t to, const std::byte* from) {
  for (int i = static_cast<int>(threadIdx.x); i < kTapBytes / 16; i += kThreads)
    mma::copy_unit(to + 16 * i, from + 16 * i, 16);
}

// One tap of 16 `steps` input channels. `pixel`: the box's pixel that the tap gives the warp's first one.
template <class T>
__device__ __forceinline__ void multiply_tap(Results& d, std::uint32_t box, std::uint32_t weights, int pixel, int steps,
                                             int columns) {
  const int lane = static_cast<int>(threadIdx.x) % 32, row = lane % 8, matrix = lane / 8;
#pragma unroll
  for (int k = 0; k < kConvBlock / kStepChannels; ++k) {
    if (k >= steps) break;
    std::uint32_t a[kWarpRows][4];
#pragma unroll
    for (int r = 0; r < kWarpRows; ++r)
      mma::load_matrices(box + unit_offset(pixel + r * kRim + matrix % 2 * 8 + row, 2 * k + matrix / 2), a[r]);
#pragma unroll
    for (int pair = 0; pair < kColumns / 2; ++pair) {
      if (2 * pair >= columns) break;
      std::uint32_t b[4];
      mma::load_matrices(weights + unit_offset(pair * 16 + matrix / 2 * 8 + row, 2 * k + matrix % 2), b);
#pragma unroll
      for (int r = 0; r < kWarpRows; ++r) {
        mma::multiply<T>(d[r][2 * pair], a[r], b[0], b[1]);
        mma::multiply<T>(d[r][2 * pair + 1], a[r], b[2], b[3]);
      }
    }
  }
}

// Calls `use` with each pair of values: row and column in the results, which half of them, and, in the warp's part, the
// pixel and the first channel.
template <class Use>
__device__ __forceinline__ void for_each_pair(Use use) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int r = 0; r < kWarpRows; ++r)
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
#pragma unroll
      for (int half = 0; half < 2; ++half) use(r, c, half, r * kWidth + lane / 4 + 8 * half, 8 * c + lane % 4 * 2);
}

struct WarpPart {
  int n, y, x, channel;  // its first pixel and channel

  __device__ std::int64_t place(const ConvPicture& p, int pixel) const {
    return n * p.image_step + (y + pixel / kWidth) * p.row_step + (x + pixel % kWidth) * p.pixel_step + channel;
  }
  __device__ bool holds(const ConvPicture& p, int pixel) const {
    return y + pixel / kWidth < p.height && x + pixel % kWidth < p.width;
  }
};

// The warp's results, as they lie in its place in shared memory, to memory.
__device__ __forceinline__ void write_part(const ConvPicture& to, const WarpPart& part, const std::uint8_t* place) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  __syncwarp();
  for (int i = lane; i < kWarpRows * kWidth * kPixelUnits; i += 32) {
    const int pixel = i / kPixelUnits, unit = i % kPixelUnits, left = to.channels - part.channel - unit * kConvUnit;
    if (left <= 0 || !part.holds(to, pixel)) continue;
    const auto* const from = reinterpret_cast<const uint4*>(place + unit_offset(pixel, unit));
    auto* const target = static_cast<std::uint16_t*>(to.data) + part.place(to, pixel) + unit * kConvUnit;
    if (left >= kConvUnit) {
      *reinterpret_cast<uint4*>(target) = *from;
      continue;
    }
    for (int e = 0; e < left; ++e) target[e] = reinterpret_cast<const std::uint16_t*>(from)[e];
  }
  __syncwarp();
}

// The other way: what the picture has of the part, to the warp's place. Units are read whole, since pixels begin at
// multiples of 8 channels.
__device__ __forceinline__ void read_part(const ConvPicture& from, const WarpPart& part, std::uint8_t* place) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int i = lane; i < kWarpRows * kWidth * kPixelUnits; i += 32) {
    const int pixel = i / kPixelUnits, unit = i % kPixelUnits;
    if (part.channel + unit * kConvUnit >= from.channels || !part.holds(from, pixel)) continue;
    *reinterpret_cast<uint4*>(place + unit_offset(pixel, unit)) = *reinterpret_cast<const uint4*>(
        static_cast<const std::uint16_t*>(from.data) + part.place(from, pixel) + unit * kConvUnit);
  }
  __syncwarp();
}

template <class T>
__device__ __forceinline__ void finish(const WarpForwardParams& p, const Results& d, const WarpPart& part,
                                       std::uint8_t* place) {
  const float* const bias = p.bias + part.channel;
  const float* const slope = bias + p.blocks * kConvBlock;
  const auto pair_at = [&](int pixel, int channel) -> std::uint32_t& {
    return *reinterpret_cast<std::uint32_t*>(place + unit_offset(pixel, channel / kConvUnit) +
                                             2 * (channel % kConvUnit));
  };
  const auto put = [&](int pixel, int channel, float first, float second) {
    pair_at(pixel, channel) = joined<T>(first, second);
  };
  if (p.z.data != nullptr) {
    for_each_pair([&](int r, int c, int half, int pixel, int channel) {
      put(pixel, channel, d[r][c][2 * half] + bias[channel], d[r][c][2 * half + 1] + bias[channel + 1]);
    });
    write_part(p.z, part, place);
  }
  if (p.residual.data != nullptr) {
    read_part(p.residual, part, place);
    for_each_pair([&](int r, int c, int half, int pixel, int channel) {
      const float2 residual = parted<T>(pair_at(pixel, channel));
      put(pixel, channel, residual.x + p.factor * (d[r][c][2 * half] + bias[channel]),
          residual.y + p.factor * (d[r][c][2 * half + 1] + bias[channel + 1]));
    });
  } else {
    with_activation(p.activation, [&](auto function) {
      for_each_pair([&](int r, int c, int half, int pixel, int channel) {
        put(pixel, channel, function.value(d[r][c][2 * half] + bias[channel], slope[channel]),
            function.value(d[r][c][2 * half + 1] + bias[channel + 1], slope[channel + 1]));
      });
    });
  }
  write_part(p.y, part, place);
}

template <class T>
__global__ void __launch_bounds__(kThreads, kBlocksEach)
    warp_forward_kernel(const __grid_constant__ WarpForwardParams p) {
  extern __shared__ std::uint8_t shared_bytes[];
  ptx::wait_for_earlier_kernels();
  const std::uint32_t unaligned = ptx::shared_address(shared_bytes);
  const std::uint32_t box = (unaligned + kSwizzleBytes - 1) / kSwizzleBytes * kSwizzleBytes, weights = box + kBoxBytes;
  const int block = static_cast<int>(blockIdx.x) % p.blocks, warp = static_cast<int>(threadIdx.x) / 32;
  const TileGrid::Tile tile = p.tiles.at(static_cast<int>(blockIdx.x) / p.blocks);
  const int taps = kTaps * p.in_blocks;
  const std::byte* const packed = p.packed + static_cast<std::int64_t>(block) * taps * kTapBytes;
  const int columns = min(kColumns, (p.y.channels - block * kConvBlock + 7) / 8);
  const auto bring_weights = [&](int tap) {
    if (tap < taps) copy_weights(weights + tap % kPlaces * kTapBytes, packed + tap * kTapBytes);
    mma::commit_copies();
  };
  Results d = {};
  bring_weights(0);
  bring_weights(1);
  for (int in_block = 0; in_block < p.in_blocks; ++in_block) {
    __syncthreads();  // all have read the box
    copy_box<kThreads>(box, p.x, in_block * kConvBlock, tile.x - 1, tile.y - 1, tile.n, kRim, kRimTall);
    mma::commit_copies();
    mma::wait_copies<0>();
    const int steps =
        min(kConvBlock / kStepChannels, (p.x.channels - in_block * kConvBlock + kStepChannels - 1) / kStepChannels);
#pragma unroll 1
    for (int t = 0; t < kTaps; ++t) {
      const int tap = in_block * kTaps + t;
      mma::wait_copies<1>();
      __syncthreads();  // this tap's weights are there for all, and the place of the one before is free
      bring_weights(tap + 2);
      multiply_tap<T>(d, box, weights + tap % kPlaces * kTapBytes, (warp * kWarpRows + t / 3) * kRim + t % 3, steps,
                      columns);
    }
  }
  __syncthreads();
  const WarpPart part{tile.n, tile.y + warp * kWarpRows, tile.x, block * kConvBlock};
  finish<T>(p, d, part, shared_bytes + (box - unaligned) + warp * kWarpBytes);
}

}  // namespace
}  // namespace conv

void warp::conv3x3(const ConvForward& c, CUstream_st* stream) {
  using namespace conv;
  if (is_empty(c.x)) return;
  if (c.residual.data != nullptr && c.activation != ConvActivation::none)
    fail("conv3x3: a residual is added to what has no activation");
  const int blocks = conv_blocks(c.y.channels, kConvBlock), in_blocks = conv_blocks(c.x.channels, kConvBlock);
  const auto* const packed = static_cast<const std::byte*>(c.packed);
  const WarpForwardParams params{.x = c.x,
                                 .y = c.y,
                                 .z = c.z,
                                 .residual = c.residual,
                                 .tiles = Tiles(c.x),
                                 .packed = packed,
                                 .bias = reinterpret_cast<const float*>(packed + blocks * in_blocks * kWeightBytes),
                                 .blocks = blocks,
                                 .in_blocks = in_blocks,
                                 .activation = c.activation,
                                 .factor = c.factor};
  const auto kernel =
      with_type(c.element, [](auto type) { return warp_forward_kernel<typename decltype(type)::type>; });
  launch(kernel, "conv3x3", dim3(static_cast<unsigned>(params.tiles.count * blocks)), kThreads, kSharedBytes, params,
         stream);
}

}  // namespace reelgrad::cuda
