// Eight channels of a pixel at a time: 16 bytes of 16-bit elements, the unit of the swizzle and of what one thread
// moves.
#pragma once
#include "reelgrad/kernels/conv.h"
#include "reelgrad/kernels/cuda/conv/elements.h"
#include "reelgrad/kernels/cuda/conv/tile.h"

namespace reelgrad::cuda::conv {

__device__ __forceinline__ float vector_element(const ConvVector& v, int i, int size) {
  if (i >= size) return 0;
  return v.data == nullptr ? v.otherwise : load(v.data, v.element, v.count == 1 ? 0 : i);
}

struct Pixel {
  int n, y, x;
};

// The pixels of a batch counted through, image by image and row by row.
__device__ __forceinline__ Pixel pixel_at(const ConvPicture& picture, std::int64_t i) {
  const std::int64_t row = i / picture.width;
  return {static_cast<int>(row / picture.height), static_cast<int>(row % picture.height),
          static_cast<int>(i - row * picture.width)};
}

__device__ __forceinline__ uint4* unit_of(const ConvPicture& picture, const Pixel& p, int unit) {
  return reinterpret_cast<uint4*>(static_cast<std::uint16_t*>(picture.data) + p.n * picture.image_step +
                                  p.y * picture.row_step + p.x * picture.pixel_step + unit * kConvUnit);
}

__device__ __forceinline__ void load_unit(const ConvPicture& picture, ElementType element, const Pixel& p, int unit,
                                          float (&values)[kConvUnit]) {
  const uint4 bits = *unit_of(picture, p, unit);
  const std::uint32_t pairs[kConvUnit / 2] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int i = 0; i < kConvUnit / 2; ++i) {
    const float2 pair = element == ElementType::f16 ? parted<__half>(pairs[i]) : parted<__nv_bfloat16>(pairs[i]);
    values[2 * i] = pair.x;
    values[2 * i + 1] = pair.y;
  }
}

__device__ __forceinline__ uint4 narrowed_unit(const float (&values)[kConvUnit], ElementType element) {
  alignas(16) std::uint16_t bits[kConvUnit];
#pragma unroll
  for (int i = 0; i < kConvUnit; ++i) bits[i] = narrowed(values[i], element);
  return *reinterpret_cast<const uint4*>(bits);
}

// Of any tensor's pixel, with zeros from `channels` on. scale > 1 undoes ConvShuffled's shuffle: channel
// (c * scale + i) * scale + j is channel c of pixel (scale * y + i, scale * x + j).
__device__ __forceinline__ void gather_unit(const ConvTensor& from, int channels, int scale, const Pixel& p, int unit,
                                            float (&values)[kConvUnit]) {
  const int squared = scale * scale;
#pragma unroll
  for (int i = 0; i < kConvUnit; ++i) {
    const int channel = unit * kConvUnit + i, sub = channel % squared;
    const std::int64_t row = std::int64_t{p.y} * scale + sub / scale, column = std::int64_t{p.x} * scale + sub % scale;
    values[i] = channel < channels ? load(from.data, from.element,
                                          p.n * from.image_step + channel / squared * from.channel_step +
                                              row * from.row_step + column * from.column_step)
                                   : 0.f;
  }
}

}  // namespace reelgrad::cuda::conv
