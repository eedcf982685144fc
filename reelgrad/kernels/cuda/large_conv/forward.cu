// Forward. A warp makes 8 rows of 16 pixels, all 16 output channels, and keeps their sums in registers. It goes through
// the 17 columns of taps; for one of them it reads each row of pixels that its rows see once, and multiplies it with
// the taps that its rows have for it: at most 8 at a time, which a next row of pixels shares but for one. So shared
// memory is read for 41 matrices where 272 instructions are done. The tile comes once with its rim of 8 pixels, the
// taps' weights a column at a time, the next on its way meanwhile.
#include "reelgrad/kernels/cuda/conv/warp_tile.h"
#include "reelgrad/kernels/cuda/large_conv/tile.h"

namespace reelgrad::cuda {
namespace large {
namespace {

constexpr int kRows = 8, kSeenRows = kRows + kRim;  // of a warp
constexpr int kDown = 2;                            // warps of a block, one below the other
constexpr int kTapBytes = kFragments * kUnitBytes, kColumnBytes = kSide * kTapBytes;
constexpr int kColumnPlaces = 2;

// A block of kAcross × 2 warps.
template <int kAcross>
struct Block {
  static constexpr int kThreads = kAcross * kDown * 32;
  static constexpr int kWidth = kAcross * kStrip, kHeight = kDown * kRows;  // pixels
  static constexpr int kBoxWidth = kWidth + kRim, kBoxHeight = kHeight + kRim;
  static constexpr int kRowBytes = kBoxWidth * kPixelBytes, kBoxBytes = kBoxHeight * kRowBytes;
  static constexpr int kSharedBytes = kBoxBytes + kColumnPlaces * kColumnBytes;
  static constexpr int kBlocksEach = 512 / kThreads;  // a multiprocessor: 128 registers a thread
  using Tiles = conv::WarpTiles<kWidth, kHeight>;
};

template <class Block>
struct ForwardParams {
  ConvPicture x, y;
  typename Block::Tiles tiles;
  const std::byte* packed;
  int others;                     // channels that no convolution sees, in units of 8
  std::uint32_t part_per_others;  // 2³¹ / others, rounded up: i / others is the upper half of the product with 2 i
};

using Sums = float[kRows][2][4];  // 16 pixels, two times 8 channels

// The first 16 channels of a tile with its rim; what lies outside of the picture becomes zeros.
template <class Block>
__device__ __forceinline__ void copy_box(std::uint32_t to, const ConvPicture& p, const conv::TileGrid::Tile& tile) {
  const auto* const image = pixel_at(p, tile.n, 0, 0);
  for (int i = static_cast<int>(threadIdx.x); i < Block::kBoxHeight * Block::kBoxWidth * kPixelUnits;
       i += Block::kThreads) {
    const int pixel = i / kPixelUnits, unit = i % kPixelUnits;
    const int y = tile.y - kReach + pixel / Block::kBoxWidth, x = tile.x - kReach + pixel % Block::kBoxWidth;
    const bool inside = y >= 0 && y < p.height && x >= 0 && x < p.width;
    mma::copy_unit(to + unit_offset(pixel, unit),
                   inside ? image + y * p.row_step + x * p.pixel_step + unit * kConvUnit : image,
                   inside ? kUnitBytes : 0);
  }
}

// The channels that no convolution sees; eight units of a thread on their way at once.
template <class Block>
__device__ __forceinline__ void copy_others(const ForwardParams<Block>& p, const conv::TileGrid::Tile& tile) {
  constexpr int kAtOnce = 8;
  const int units = p.others, count = Block::kWidth * Block::kHeight * units;
  for (int first = static_cast<int>(threadIdx.x); first < count; first += kAtOnce * Block::kThreads) {
    uint4 values[kAtOnce];
    const auto for_each = [&](auto use) {
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int i = first + k * Block::kThreads, pixel = static_cast<int>(__umulhi(2 * i, p.part_per_others));
        const int channel = kChannels + (i - pixel * units) * kConvUnit;
        const int y = tile.y + pixel / Block::kWidth, x = tile.x + pixel % Block::kWidth;
        if (i < count && y < p.x.height && x < p.x.width) use(values[k], y, x, channel);
      }
    };
    for_each([&](uint4& value, int y, int x, int channel) {
      value = __ldg(reinterpret_cast<const uint4*>(pixel_at(p.x, tile.n, y, x) + channel));
    });
    for_each([&](const uint4& value, int y, int x, int channel) {
      *reinterpret_cast<uint4*>(const_cast<std::uint16_t*>(pixel_at(p.y, tile.n, y, x)) + channel) = value;
    });
  }
}

// One column of taps. `pixels`: where this thread's part of the first row's matrix lies; `weights`: its part of the
// first tap.
template <class T, int kRowBytes>
__device__ __forceinline__ void multiply_column(Sums& d, std::uint32_t pixels, const std::uint8_t* weights) {
  std::uint32_t row[4], next[4];
  uint4 taps[kSide];  // of which at most nine are alive
  mma::load_matrices(pixels, row);
#pragma unroll
  for (int r = 0; r < kSeenRows; ++r) {
    if (r < kSide) taps[r] = *reinterpret_cast<const uint4*>(weights + r * kTapBytes);
    if (r + 1 < kSeenRows) mma::load_matrices(pixels + (r + 1) * kRowBytes, next);
#pragma unroll
    for (int out = kRows - 1; out >= 0; --out) {  // the tap that was read just now comes last
      const int tap = r - out;
      if (tap < 0 || tap >= kSide) continue;
      mma::multiply<T>(d[out][0], row, taps[tap].x, taps[tap].y);
      mma::multiply<T>(d[out][1], row, taps[tap].z, taps[tap].w);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) row[i] = next[i];
  }
}

// The sums of rows from (x, y) on, with the bias, to memory.
template <class T>
__device__ __forceinline__ void write_sums(const Sums& d, const float* bias, const ConvPicture& p, int n, int y,
                                           int x) {
  const int first = x + lane() / 4, channel = lane() % 4 * 2;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float2 b = *reinterpret_cast<const float2*>(bias + 8 * half + channel);
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (y + r >= p.height || first + 8 * i >= p.width) continue;
        auto* const to = const_cast<std::uint16_t*>(pixel_at(p, n, y + r, first + 8 * i)) + 8 * half + channel;
        *reinterpret_cast<std::uint32_t*>(to) = conv::joined<T>(d[r][half][2 * i] + b.x, d[r][half][2 * i + 1] + b.y);
      }
  }
}

template <class T, class Block>
__global__ void __launch_bounds__(Block::kThreads, Block::kBlocksEach)
    forward_kernel(const __grid_constant__ ForwardParams<Block> p) {
  extern __shared__ __align__(16) std::uint8_t shared_bytes[];
  ptx::wait_for_earlier_kernels();
  const std::uint32_t box = ptx::shared_address(shared_bytes);
  std::uint8_t* const weights = shared_bytes + Block::kBoxBytes;
  const conv::TileGrid::Tile tile = p.tiles.at(static_cast<int>(blockIdx.x));
  const auto bring_column = [&](int column) {
    if (column >= kSide) return;
    const std::uint32_t to = ptx::shared_address(weights + column % kColumnPlaces * kColumnBytes);
    for (int i = static_cast<int>(threadIdx.x); i < kColumnBytes / kUnitBytes; i += Block::kThreads)
      mma::copy_unit(to + i * kUnitBytes, p.packed + column * kColumnBytes + i * kUnitBytes, kUnitBytes);
    mma::commit_copies();
  };
  copy_box<Block>(box, p.x, tile);
  bring_column(0);
  copy_others<Block>(p, tile);

  const int y = warp() / (Block::kWidth / kStrip) * kRows, x = warp() % (Block::kWidth / kStrip) * kStrip;
  const int matrix = lane() / 8, pixel = x + matrix % 2 * 8 + lane() % 8;
  Sums d = {};
#pragma unroll 1
  for (int column = 0; column < kSide; ++column) {
    mma::wait_copies<0>();
    __syncthreads();  // this column's weights are there for all, and the place of the one before is free
    bring_column(column + 1);
    multiply_column<T, Block::kRowBytes>(d, box + y * Block::kRowBytes + unit_offset(pixel + column, matrix / 2),
                                         weights + column % kColumnPlaces * kColumnBytes + lane() * kUnitBytes);
  }
  write_sums<T>(d, reinterpret_cast<const float*>(p.packed + kLargeWeightBytes), p.y, tile.n, tile.y + y, tile.x + x);
}

template <class Block>
void run(const LargeConv& c, CUstream_st* stream) {
  const std::uint32_t others = static_cast<std::uint32_t>(c.x.channels / kConvUnit - kPixelUnits);
  const ForwardParams<Block> params{.x = c.x,
                                    .y = c.y,
                                    .tiles = typename Block::Tiles(c.x),
                                    .packed = static_cast<const std::byte*>(c.packed),
                                    .others = static_cast<int>(others),
                                    .part_per_others = others == 0 ? 0 : ((1U << 31) + others - 1) / others};
  const auto kernel =
      conv::with_type(c.element, [](auto type) { return forward_kernel<typename decltype(type)::type, Block>; });
  conv::launch(kernel, "large_conv", dim3(static_cast<unsigned>(params.tiles.count)), Block::kThreads,
               Block::kSharedBytes, params, stream);
}

}  // namespace
}  // namespace large

void large_conv(const LargeConv& c, CUstream_st* stream) {
  using namespace large;
  if (conv::is_empty(c.x)) return;
  if (c.x.channels < kChannels || c.x.channels > kLargeMostChannels || c.x.channels % kConvUnit != 0 ||
      c.y.channels != c.x.channels)
    fail("large_conv: channels must be a multiple of 8, from 16 to 8192, and the same in and out");
  // Large blocks read less of rims; small ones reach more multiprocessors.
  using Large = Block<4>;
  using Small = Block<2>;
  const bool enough = Large::Tiles(c.x).count >= Large::kBlocksEach * conv::multiprocessors();
  enough ? run<Large>(c, stream) : run<Small>(c, stream);
}

}  // namespace reelgrad::cuda
