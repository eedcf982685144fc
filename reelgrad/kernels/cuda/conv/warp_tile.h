// Tiles of the kernels whose warps multiply by themselves (mma.h). Pixels lie in shared memory as in tile.h, 128 bytes
// each, but whole rows of 16 pixels are one matrix's: a tile is 16 pixels wide. The 16 bytes of channels 8 u … 8 u + 7
// of a box's pixel i are at i * 128 + ((u ^ i % 8) * 16), so that eight pixels' units lie in different banks.
#pragma once
#include "reelgrad/kernels/cuda/conv/mma.h"
#include "reelgrad/kernels/cuda/conv/tile.h"

namespace reelgrad::cuda::conv {

constexpr int kMatrixRows = 16;  // pixels

__device__ __forceinline__ std::uint32_t unit_offset(int pixel, int unit) {
  return static_cast<std::uint32_t>(pixel * kPixelBytes + ((unit ^ (pixel % 8)) << 4));
}

// Begins to copy a box of width × height pixels, from pixel (x, y) of image n and channel `channel` on; what lies
// outside of the picture or beyond its channels becomes zeros.
template <int kThreads>
__device__ __forceinline__ void copy_box(std::uint32_t to, const ConvPicture& p, int channel, int x, int y, int n,
                                         int width, int height) {
  const auto* const image = static_cast<const std::uint16_t*>(p.data) + n * p.image_step + channel;
  for (int i = static_cast<int>(threadIdx.x); i < width * height * kPixelUnits; i += kThreads) {
    const int pixel = i / kPixelUnits, unit = i % kPixelUnits;
    const int row = y + pixel / width, column = x + pixel % width;
    const bool inside = row >= 0 && row < p.height && column >= 0 && column < p.width;
    const int left = p.channels - channel - unit * kConvUnit;
    const int elements = inside ? max(0, min(kConvUnit, left)) : 0;
    const std::uint16_t* const from =
        elements > 0 ? image + row * p.row_step + column * p.pixel_step + unit * kConvUnit : image;
    mma::copy_unit(to + unit_offset(pixel, unit), from, 2 * elements);
  }
}

// The tiles of a batch, image by image and row by row, of kWidth × kHeight pixels.
template <int kWidth, int kHeight>
struct WarpTiles {
  int across = 0, per_image = 0, count = 0;

  explicit WarpTiles(const ConvPicture& picture) {
    across = (picture.width + kWidth - 1) / kWidth;
    per_image = across * ((picture.height + kHeight - 1) / kHeight);
    count = per_image * picture.batch;
  }

  __device__ TileGrid::Tile at(int i) const {
    const int n = i / per_image, rest = i - n * per_image, row = rest / across;
    return {(rest - row * across) * kWidth, row * kHeight, n};
  }
};

}  // namespace reelgrad::cuda::conv
