#include "reelgrad/kernels/cuda/device.h"
#include "reelgrad/kernels/gather.h"

namespace reelgrad::cuda {
namespace {

// A block makes kTileX x kTileY chroma samples and the luma samples that they cover.
constexpr int kTileX = 32, kTileY = 8;
constexpr int kMaxFactor = 4;
constexpr int kMaxNarrowRows = (kTileY - 1) * kMaxFactor + kMaxDownTaps;

template <ElementType element>
__device__ __forceinline__ Triple load_pixel(const Conversion& c, const ImageRef& image, int x, int y) {
  const std::ptrdiff_t at = y * image.strides.row + x * image.strides.pixel;
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

// The planes of the luma's size among [0, planes).
template <ElementType element>
__device__ void store_pixel(const Conversion& c, const ImageRef& image, const MutablePictureRef& out, int planes,
                            Rounding rounding, int x, int y) {
  const Triple pixel = map_signal(c.matrix, c.network, c.clip, load_pixel<element>(c, image, x, y));
  store(c, rounding, out, 0, x, y, pixel.a);
  if (planes == 1) return;
  store(c, rounding, out, 1, x, y, pixel.b);
  store(c, rounding, out, 2, x, y, pixel.c);
}

// Cb and Cr of luma row y at chroma column x.
template <ElementType element>
__device__ float2 narrow_at(const Conversion& c, const Downsampling& down, const ImageRef& image, int width, int x,
                            int y) {
  const int first = (x << down.log2) + down.first;
  float2 sum{0, 0};
  for (int t = 0; t < down.taps; ++t) {
    const Triple p = load_pixel<element>(c, image, mirror(first + t, width), y);
    const Triple ycc = map_signal(c.matrix, c.network, Signal::ycc, p);
    const float w = down.weight[t];
    sum.x = t == 0 ? w * ycc.b : sum.x + w * ycc.b;
    sum.y = t == 0 ? w * ycc.c : sum.y + w * ycc.c;
  }
  return sum;
}

// Chroma is filtered along x into shared memory, then along y, as cpu/scatter.cpp does. `full_planes` are stored
// pixel by pixel; the others, if `filters`, are chroma. Luma rows [row_begin, row_end) and their chroma; of other rows
// of the image only those within the filter's reach are read.
template <ElementType element>
__global__ void scatter_kernel(const __grid_constant__ Conversion c, const __grid_constant__ ChromaDown down,
                               const __grid_constant__ ImageRef image, const __grid_constant__ MutablePictureRef out,
                               int full_planes, bool filters, Rounding rounding, int row_begin, int row_end) {
  const int shift_x = filters ? down.x.log2 : 0, shift_y = filters ? down.y.log2 : 0;
  const int tile_x = blockIdx.x * kTileX, tile_y = (row_begin >> shift_y) + blockIdx.y * kTileY;
  const int end_x = min((tile_x + kTileX) << shift_x, out.width);
  const int end_y = min((tile_y + kTileY) << shift_y, row_end);
  for (int y = (tile_y << shift_y) + threadIdx.y; y < end_y; y += kTileY)
    for (int x = (tile_x << shift_x) + threadIdx.x; x < end_x; x += kTileX)
      store_pixel<element>(c, image, out, full_planes, rounding, x, y);
  if (!filters) return;

  __shared__ float2 narrow[kMaxNarrowRows][kTileX];
  const int x = tile_x + threadIdx.x, y = tile_y + threadIdx.y;
  const int width = out.width >> shift_x, height = row_end >> shift_y;
  const int first_row = (tile_y << shift_y) + down.y.first;
  const int rows = ((min(kTileY, height - tile_y) - 1) << shift_y) + down.y.taps;
  if (x < width)
    for (int row = threadIdx.y; row < rows; row += kTileY)
      narrow[row][threadIdx.x] =
          narrow_at<element>(c, down.x, image, out.width, x, mirror(first_row + row, out.height));
  __syncthreads();
  if (x >= width || y >= height) return;

  float2 sum{0, 0};
  for (int t = 0; t < down.y.taps; ++t) {
    const float2 value = narrow[(threadIdx.y << shift_y) + t][threadIdx.x];
    const float w = down.y.weight[t];
    sum.x = t == 0 ? w * value.x : sum.x + w * value.x;
    sum.y = t == 0 ? w * value.y : sum.y + w * value.y;
  }
  store(c, rounding, out, 1, x, y, sum.x);
  store(c, rounding, out, 2, x, y, sum.y);
}

}  // namespace

void scatter_rows(const ScatterSpec& spec, const ImageRef& in, const MutablePictureRef& out, int row_begin, int row_end,
                  CUstream_st* stream) {
  const Conversion c = make_conversion(spec.format, spec.color, spec.from);
  const ChromaDown down = make_chroma_down(spec.format, spec.color.chroma_location, spec.filter);
  const bool filters = filters_chroma(c, down);
  const bool luma_only = filters || (c.clip == Signal::ycc && c.network == Signal::gray);
  const int width = filters ? out.width >> down.x.log2 : out.width;
  const int shift_y = filters ? down.y.log2 : 0, height = (row_end >> shift_y) - (row_begin >> shift_y);
  const dim3 block(kTileX, kTileY), grid(blocks(width, kTileX), blocks(height, kTileY));
  with_element(spec.element, [&](auto element) {
    scatter_kernel<decltype(element)::value><<<grid, block, 0, stream>>>(
        c, down, in, out, luma_only ? 1 : planes(c.clip), filters, spec.rounding, row_begin, row_end);
  });
  check_launch("scatter");
}

void scatter(const ScatterSpec& spec, const ImageRef& in, const MutablePictureRef& out, CUstream_st* stream) {
  scatter_rows(spec, in, out, 0, out.height, stream);
}

}  // namespace reelgrad::cuda
