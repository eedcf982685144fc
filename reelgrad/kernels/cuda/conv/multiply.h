// A tile's convolution from shared memory, and the choice of a kernel by what is known at run time alone.
#pragma once
#include <type_traits>

#include "reelgrad/kernels/cuda/conv/tile.h"
#include "reelgrad/kernels/cuda/conv/wgmma.h"

namespace reelgrad::cuda::conv {

// `kTapCount` taps next to each other in a row, of 16 kSteps input channels: `weights` from the first of them on,
// `pixels` the tile's first pixel as that tap sees it.
template <class T, int kTapCount, int kSteps>
__device__ __forceinline__ void multiply_taps(float (&d)[128], std::uint32_t weights, std::uint32_t pixels, bool add) {
#pragma unroll
  for (int tap = 0; tap < kTapCount; ++tap)
#pragma unroll
    for (int k = 0; k < kSteps; ++k)
      wgmma::multiply<T>(d, wgmma::matrix(weights + tap * kTapBytes, 8 * kPixelBytes) + wgmma::moved(k * kStepBytes),
                         wgmma::matrix(pixels + tap * kPixelBytes, kRimRowBytes) + wgmma::moved(k * kStepBytes),
                         add || tap + k > 0);
}

// All nine taps: of one block of weights and a tile with its rim.
template <class T, int kSteps>
__device__ __forceinline__ void multiply_tile(float (&d)[128], std::uint32_t weights, std::uint32_t rim) {
  wgmma::begin();
#pragma unroll
  for (int row = 0; row < 3; ++row)
    multiply_taps<T, 3, kSteps>(d, weights + row * 3 * kTapBytes, rim + row * kRimRowBytes, row > 0);
  wgmma::commit();
}

// Calls `use` with the element type's C++ type, a std::type_identity.
template <class Use>
auto with_type(ElementType element, Use use) {
  return element == ElementType::f16 ? use(std::type_identity<__half>{}) : use(std::type_identity<__nv_bfloat16>{});
}

// Calls `use` with the instructions that a tap of `channels` <= 64 takes, as a constant.
template <class Use>
auto with_steps(int channels, Use use) {
  switch ((channels + kStepChannels - 1) / kStepChannels) {
    case 1:
      return use(std::integral_constant<int, 1>{});
    case 2:
      return use(std::integral_constant<int, 2>{});
    case 3:
      return use(std::integral_constant<int, 3>{});
    default:
      return use(std::integral_constant<int, 4>{});
  }
}

}  // namespace reelgrad::cuda::conv
