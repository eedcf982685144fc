// Elements of tensors whose type is known at run time; it is uniform over a launch.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "reelgrad/kernels/conv.h"

namespace reelgrad::cuda::conv {

__device__ __forceinline__ float load(const void* data, ElementType element, std::int64_t at) {
  switch (element) {
    case ElementType::f32:
      return static_cast<const float*>(data)[at];
    case ElementType::f16:
      return __half2float(static_cast<const __half*>(data)[at]);
    case ElementType::bf16:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[at]);
  }
  return 0;
}

__device__ __forceinline__ void store(void* data, ElementType element, std::int64_t at, float value) {
  switch (element) {
    case ElementType::f32:
      static_cast<float*>(data)[at] = value;
      break;
    case ElementType::f16:
      static_cast<__half*>(data)[at] = __float2half_rn(value);
      break;
    case ElementType::bf16:
      static_cast<__nv_bfloat16*>(data)[at] = __float2bfloat16_rn(value);
  }
}

// Two neighbours, at a place where they can be written at once.
__device__ __forceinline__ void store_pair(void* data, ElementType element, std::int64_t at, float first,
                                           float second) {
  switch (element) {
    case ElementType::f32:
      *reinterpret_cast<float2*>(static_cast<float*>(data) + at) = {first, second};
      break;
    case ElementType::f16:
      *reinterpret_cast<__half2*>(static_cast<__half*>(data) + at) = __floats2half2_rn(first, second);
      break;
    case ElementType::bf16:
      *reinterpret_cast<__nv_bfloat162*>(static_cast<__nv_bfloat16*>(data) + at) = __floats2bfloat162_rn(first, second);
  }
}

// One 16-bit element's bits.
__device__ __forceinline__ std::uint16_t narrowed(float value, ElementType element) {
  return element == ElementType::f16 ? __half_as_ushort(__float2half_rn(value))
                                     : __bfloat16_as_ushort(__float2bfloat16_rn(value));
}

}  // namespace reelgrad::cuda::conv
