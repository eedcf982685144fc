#include "reelgrad/kernels/doubling.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "reelgrad/kernels/cuda/device.h"

namespace reelgrad::cuda {
namespace {

constexpr int kThreads = 256;
constexpr float kNear = 0.75f, kFar = 0.25f;

// Neighbouring channels of a pixel, which one thread loads and stores at once.
template <ElementType element>
struct Unit {
  static constexpr int kSize = kDoublingUnitBytes / static_cast<int>(element_bytes(element));
  float value[kSize];

  static __device__ __forceinline__ Unit load(const uint4& bits) {
    Unit unit;
    if constexpr (element == ElementType::f32) {
      unit = {{__uint_as_float(bits.x), __uint_as_float(bits.y), __uint_as_float(bits.z), __uint_as_float(bits.w)}};
    } else {
      const std::uint32_t pairs[4] = {bits.x, bits.y, bits.z, bits.w};
      for (int i = 0; i < kSize; ++i) {
        const auto one = static_cast<unsigned short>(pairs[i / 2] >> (16 * (i % 2)));
        if constexpr (element == ElementType::f16)
          unit.value[i] = __half2float(__ushort_as_half(one));
        else
          unit.value[i] = __bfloat162float(__ushort_as_bfloat16(one));
      }
    }
    return unit;
  }

  __device__ __forceinline__ uint4 bits() const {
    if constexpr (element == ElementType::f32) {
      return {__float_as_uint(value[0]), __float_as_uint(value[1]), __float_as_uint(value[2]),
              __float_as_uint(value[3])};
    } else {
      std::uint32_t pairs[4];
      for (int i = 0; i < 4; ++i) {
        std::uint32_t halves[2];
        for (int k = 0; k < 2; ++k) {
          if constexpr (element == ElementType::f16)
            halves[k] = __half_as_ushort(__float2half_rn(value[2 * i + k]));
          else
            halves[k] = __bfloat16_as_ushort(__float2bfloat16_rn(value[2 * i + k]));
        }
        pairs[i] = halves[0] | (halves[1] << 16);
      }
      return {pairs[0], pairs[1], pairs[2], pairs[3]};
    }
  }
};

template <ElementType element>
__device__ __forceinline__ Unit<element> mix(const Unit<element>& far, const Unit<element>& near) {
  Unit<element> sum;
  for (int i = 0; i < Unit<element>::kSize; ++i) sum.value[i] = kFar * far.value[i] + kNear * near.value[i];
  return sum;
}

// What two ends and the two between them give to the one that lies in their middle.
template <ElementType element>
__device__ __forceinline__ Unit<element> gather4(const Unit<element>& a, const Unit<element>& b, const Unit<element>& c,
                                                 const Unit<element>& d) {
  Unit<element> sum;
  for (int i = 0; i < Unit<element>::kSize; ++i)
    sum.value[i] = kFar * (a.value[i] + d.value[i]) + kNear * (b.value[i] + c.value[i]);
  return sum;
}

// A picture's units; rows and columns beyond the border are the border's.
struct Units {
  const uint4* data;
  std::int64_t image;  // first unit
  int height, width, units;

  __device__ __forceinline__ uint4 at(int y, int x, int unit) const {
    y = min(max(y, 0), height - 1);
    x = min(max(x, 0), width - 1);
    return data[image + (static_cast<std::int64_t>(y) * width + x) * units + unit];
  }
};

// Of the smaller picture.
struct Place {
  int image, y, x, unit;
};

__device__ __forceinline__ Place place_of(std::int64_t index, int height, int width, int units) {
  Place place;
  place.unit = static_cast<int>(index % units);
  index /= units;
  place.x = static_cast<int>(index % width);
  index /= width;
  place.y = static_cast<int>(index % height);
  place.image = static_cast<int>(index / height);
  return place;
}

// A thread makes the four pixels that lie in one of the smaller picture.
template <ElementType element>
__global__ void double_kernel(const uint4* __restrict__ in, uint4* __restrict__ out, std::int64_t count, int height,
                              int width, int units) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= count) return;
  const Place p = place_of(index, height, width, units);
  const Units small{in, std::int64_t{p.image} * height * width * units, height, width, units};
  Unit<element> left[3], right[3];
  for (int row = 0; row < 3; ++row) {
    const auto at = [&](int column) { return Unit<element>::load(small.at(p.y + row - 1, p.x + column, p.unit)); };
    const Unit<element> middle = at(0);
    left[row] = mix(at(-1), middle);
    right[row] = mix(at(1), middle);
  }
  const std::int64_t row_step = std::int64_t{2} * width * units;
  uint4* const to = out + 4 * small.image + 2 * p.y * row_step + std::int64_t{2} * p.x * units + p.unit;
  to[0] = mix(left[0], left[1]).bits();
  to[units] = mix(right[0], right[1]).bits();
  to[row_step] = mix(left[2], left[1]).bits();
  to[row_step + units] = mix(right[2], right[1]).bits();
}

// Of each pixel of the smaller picture, from the 4 x 4 of the larger one that it went to. At the border it went to the
// outermost with all of its weight, which is that of their repetition.
template <ElementType element>
__global__ void double_backward_kernel(const uint4* __restrict__ of_out, uint4* __restrict__ of_in, std::int64_t count,
                                       int height, int width, int units) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= count) return;
  const Place p = place_of(index, height, width, units);
  const Units large{of_out, std::int64_t{p.image} * height * width * units * 4, 2 * height, 2 * width, units};
  Unit<element> rows[4];
  for (int row = 0; row < 4; ++row) {
    const auto at = [&](int column) {
      return Unit<element>::load(large.at(2 * p.y + row - 1, 2 * p.x + column - 1, p.unit));
    };
    rows[row] = gather4(at(0), at(1), at(2), at(3));
  }
  of_in[index] = gather4(rows[0], rows[1], rows[2], rows[3]).bits();
}

struct Launch {
  std::int64_t count;
  int units;
  unsigned blocks;
};

Launch launch_of(const Doubling& d) {
  const int units = d.channels * static_cast<int>(element_bytes(d.element)) / kDoublingUnitBytes;
  const std::int64_t count = std::int64_t{d.batch} * d.height * d.width * units;
  return {count, units, static_cast<unsigned>((count + kThreads - 1) / kThreads)};
}

}  // namespace

void double_bilinear(const Doubling& d, const void* in, void* out, CUstream_st* stream) {
  const Launch launch = launch_of(d);
  if (launch.count == 0) return;
  with_element(d.element, [&](auto element) {
    double_kernel<decltype(element)::value><<<launch.blocks, kThreads, 0, stream>>>(
        static_cast<const uint4*>(in), static_cast<uint4*>(out), launch.count, d.height, d.width, launch.units);
  });
  check_launch("double_bilinear");
}

void double_bilinear_backward(const Doubling& d, const void* of_out, void* of_in, CUstream_st* stream) {
  const Launch launch = launch_of(d);
  if (launch.count == 0) return;
  with_element(d.element, [&](auto element) {
    double_backward_kernel<decltype(element)::value><<<launch.blocks, kThreads, 0, stream>>>(
        static_cast<const uint4*>(of_out), static_cast<uint4*>(of_in), launch.count, d.height, d.width, launch.units);
  });
  check_launch("double_bilinear_backward");
}

}  // namespace reelgrad::cuda
