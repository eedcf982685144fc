#include "reelgrad/kernels/cuda/device.h"
#include "reelgrad/kernels/gather.h"

namespace reelgrad::cuda {
namespace {

constexpr int kThreadsX = 32, kThreadsY = 8;
// A block of scatter_chroma_kernel() makes so many luma samples, and the chroma samples that lie among them.
constexpr int kTileColumns = 64, kTileRows = 32;
constexpr int kColumnsALane = (kTileColumns + kMaxDownTaps + kThreadsX - 1) / kThreadsX;

// `at`: of the first channel, in elements.
template <ElementType element>
__device__ __forceinline__ Triple load_pixel(const Conversion& c, const ImageRef& image, std::ptrdiff_t at) {
  const float first = load_element<element>(image.data, at);
  if (c.network == Signal::gray) return {first, 0, 0};
  const float bias = c.network == Signal::ycc ? kNetworkChromaBias : 0.0f;
  return {first, load_element<element>(image.data, at + image.strides.channel) - bias,
          load_element<element>(image.data, at + 2 * image.strides.channel) - bias};
}

__device__ __forceinline__ void store(const Conversion& c, Rounding rounding, const MutablePictureRef& out, int plane,
                                      int x, int y, float value) {
  const CodeRange& range = c.clip == Signal::ycc && plane > 0 ? c.chroma : c.luma;
  const float dither = rounding == Rounding::ordered ? ordered_dither(plane, x, y) : 0.0f;
  store_sample(c.storage, range, value, dither, out.plane[plane] + out.stride_bytes[plane] * y, x);
}

// The filter's sum over samples `step` apart, in the order of cpu/scatter.cpp.
__device__ __forceinline__ float2 weighed(const Downsampling& down, const float2* from, int step) {
  float2 sum{down.weight[0] * from[0].x, down.weight[0] * from[0].y};
  for (int t = 1; t < down.taps; ++t) {
    const float2 value = from[t * step];
    sum.x += down.weight[t] * value.x;
    sum.y += down.weight[t] * value.y;
  }
  return sum;
}

// The first `planes` planes, sample by sample, of rows [row_begin, row_end).
template <ElementType element>
__global__ void scatter_kernel(const __grid_constant__ Conversion c, const __grid_constant__ ImageRef image,
                               const __grid_constant__ MutablePictureRef out, int planes, Rounding rounding,
                               int row_begin, int row_end) {
  const int x = static_cast<int>(blockIdx.x * kThreadsX + threadIdx.x);
  const int y = row_begin + static_cast<int>(blockIdx.y * kThreadsY + threadIdx.y);
  if (x >= out.width || y >= row_end) return;
  const Triple pixel = map_signal(c.matrix, c.network, c.clip,
                                  load_pixel<element>(c, image, y * image.strides.row + x * image.strides.pixel));
  store(c, rounding, out, 0, x, y, pixel.a);
  if (planes == 1) return;
  store(c, rounding, out, 1, x, y, pixel.b);
  store(c, rounding, out, 2, x, y, pixel.c);
}

// What a block of scatter_chroma_kernel() works on: chroma samples [x, x + columns) x [y, y + rows), and around them
// the luma samples that the filters reach.
struct Tile {
  __host__ __device__ Tile(const ChromaDown& down)
      : columns(kTileColumns >> down.x.log2),
        rows(kTileRows >> down.y.log2),
        reached_columns(kTileColumns - (1 << down.x.log2) + down.x.taps),
        reached_rows(kTileRows - (1 << down.y.log2) + down.y.taps) {}

  __host__ __device__ std::size_t shared_bytes() const {
    return static_cast<std::size_t>(reached_rows) * static_cast<std::size_t>(reached_columns + columns) *
           sizeof(float2);
  }

  int columns, rows, reached_columns, reached_rows;
};
// No more than every card gives unasked, with a filter along x and without.
constexpr std::size_t kMostReachedRows = kTileRows + kMaxDownTaps;
static_assert(kMostReachedRows * (kTileColumns + kMaxDownTaps + kTileColumns / 2) * sizeof(float2) <= 48 * 1024);
static_assert(kMostReachedRows * (kTileColumns + kTileColumns) * sizeof(float2) <= 48 * 1024);

// Y'CbCr of each luma sample in reach is computed once: its luma is stored, its chroma filtered along x into shared
// memory, then along y, as cpu/scatter.cpp does. Luma rows [row_begin, row_end) and their chroma; of other rows of the
// image only those within the filter's reach are read.
template <ElementType element>
__global__ void __launch_bounds__(kThreadsX* kThreadsY)
    scatter_chroma_kernel(const __grid_constant__ Conversion c, const __grid_constant__ ChromaDown down,
                          const __grid_constant__ ImageRef image, const __grid_constant__ MutablePictureRef out,
                          Rounding rounding, int row_begin, int row_end) {
  extern __shared__ float2 memory[];
  const Tile tile(down);
  float2* const wide = memory;
  float2* const narrow = memory + tile.reached_rows * tile.reached_columns;
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const int luma_x = static_cast<int>(blockIdx.x) * kTileColumns;
  const int luma_y = row_begin + static_cast<int>(blockIdx.y) * kTileRows;
  const int end_x = min(luma_x + kTileColumns, out.width), end_y = min(luma_y + kTileRows, row_end);

  std::ptrdiff_t at_column[kColumnsALane];  // the same in every row
  for (int k = 0; k < kColumnsALane; ++k)
    at_column[k] = mirror(luma_x + down.x.first + lane + k * kThreadsX, out.width) * image.strides.pixel;
  for (int row = warp; row < tile.reached_rows; row += kThreadsY) {
    const int y = luma_y + down.y.first + row;
    const std::ptrdiff_t at_row = mirror(y, out.height) * image.strides.row;
    Triple pixel[kColumnsALane];  // all loads are on their way before the first is used
    for (int k = 0; k < kColumnsALane; ++k)
      if (lane + k * kThreadsX < tile.reached_columns) pixel[k] = load_pixel<element>(c, image, at_row + at_column[k]);
    for (int k = 0; k < kColumnsALane; ++k) {
      const int column = lane + k * kThreadsX, x = luma_x + down.x.first + column;
      if (column >= tile.reached_columns) continue;
      const Triple ycc = map_signal(c.matrix, c.network, Signal::ycc, pixel[k]);
      wide[row * tile.reached_columns + column] = {ycc.b, ycc.c};
      if (x >= luma_x && x < end_x && y >= luma_y && y < end_y) store(c, rounding, out, 0, x, y, ycc.a);
    }
  }
  __syncthreads();

  for (int row = warp; row < tile.reached_rows; row += kThreadsY)
    for (int column = lane; column < tile.columns; column += kThreadsX)
      narrow[row * tile.columns + column] =
          weighed(down.x, wide + row * tile.reached_columns + (column << down.x.log2), 1);
  __syncthreads();

  for (int row = warp; row < tile.rows; row += kThreadsY) {
    const int y = (luma_y >> down.y.log2) + row;
    if (y >= row_end >> down.y.log2) return;
    for (int column = lane; column < tile.columns; column += kThreadsX) {
      const int x = (luma_x >> down.x.log2) + column;
      if (x >= out.width >> down.x.log2) break;
      const float2 sum = weighed(down.y, narrow + (row << down.y.log2) * tile.columns + column, tile.columns);
      store(c, rounding, out, 1, x, y, sum.x);
      store(c, rounding, out, 2, x, y, sum.y);
    }
  }
}

}  // namespace

void scatter_rows(const ScatterSpec& spec, const ImageRef& in, const MutablePictureRef& out, int row_begin, int row_end,
                  CUstream_st* stream) {
  const Conversion c = make_conversion(spec.format, spec.color, spec.from);
  const ChromaDown down = make_chroma_down(spec.format, spec.color.chroma_location, spec.filter);
  if (row_end <= row_begin) return;
  const dim3 block(kThreadsX, kThreadsY);
  if (filters_chroma(c, down)) {
    const dim3 grid(blocks(out.width, kTileColumns), blocks(row_end - row_begin, kTileRows));
    with_element(spec.element, [&](auto element) {
      scatter_chroma_kernel<decltype(element)::value>
          <<<grid, block, Tile(down).shared_bytes(), stream>>>(c, down, in, out, spec.rounding, row_begin, row_end);
    });
  } else {
    const bool luma_only = c.clip == Signal::ycc && c.network == Signal::gray;
    const dim3 grid(blocks(out.width, kThreadsX), blocks(row_end - row_begin, kThreadsY));
    with_element(spec.element, [&](auto element) {
      scatter_kernel<decltype(element)::value>
          <<<grid, block, 0, stream>>>(c, in, out, luma_only ? 1 : planes(c.clip), spec.rounding, row_begin, row_end);
    });
  }
  check_launch("scatter");
}

void scatter(const ScatterSpec& spec, const ImageRef& in, const MutablePictureRef& out, CUstream_st* stream) {
  scatter_rows(spec, in, out, 0, out.height, stream);
}

}  // namespace reelgrad::cuda
