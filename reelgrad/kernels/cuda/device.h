// What the kernels share: access to samples and elements in their storage, and launch checks.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <string>
#include <type_traits>

#include "reelgrad/base/error.h"
#include "reelgrad/kernels/conversion.h"
#include "reelgrad/kernels/gather.h"

namespace reelgrad::cuda {

template <Storage storage>
__device__ __forceinline__ float load_sample(const CodeRange& range, const std::byte* row, int x) {
  if constexpr (storage == Storage::u8)
    return value_of_code(range, static_cast<float>(reinterpret_cast<const std::uint8_t*>(row)[x]));
  else if constexpr (storage == Storage::u16)
    return value_of_code(range, static_cast<float>(reinterpret_cast<const std::uint16_t*>(row)[x]));
  else if constexpr (storage == Storage::half)
    return __half2float(reinterpret_cast<const __half*>(row)[x]);
  else
    return reinterpret_cast<const float*>(row)[x];
}

// The storage, like the element type below, is uniform over a launch.
__device__ __forceinline__ void store_sample(Storage storage, const CodeRange& range, float value, float dither,
                                             std::byte* row, int x) {
  switch (storage) {
    case Storage::u8:
      reinterpret_cast<std::uint8_t*>(row)[x] = static_cast<std::uint8_t>(code_of_value(range, value, dither));
      break;
    case Storage::u16:
      reinterpret_cast<std::uint16_t*>(row)[x] = static_cast<std::uint16_t>(code_of_value(range, value, dither));
      break;
    case Storage::half:
      reinterpret_cast<__half*>(row)[x] = __float2half_rn(value);
      break;
    case Storage::single:
      reinterpret_cast<float*>(row)[x] = value;
  }
}

template <ElementType element>
__device__ __forceinline__ float load_element(const void* image, std::ptrdiff_t at) {
  if constexpr (element == ElementType::f32)
    return static_cast<const float*>(image)[at];
  else if constexpr (element == ElementType::f16)
    return __half2float(static_cast<const __half*>(image)[at]);
  else
    return __bfloat162float(static_cast<const __nv_bfloat16*>(image)[at]);
}

__device__ __forceinline__ void store_element(ElementType element, void* image, std::ptrdiff_t at, float value) {
  if (element == ElementType::f32)
    static_cast<float*>(image)[at] = value;
  else if (element == ElementType::f16)
    static_cast<__half*>(image)[at] = __float2half_rn(value);
  else
    static_cast<__nv_bfloat16*>(image)[at] = __float2bfloat16_rn(value);
}

// map_signal with the meanings known at run time: they are uniform over a launch.
__device__ __forceinline__ Triple map_signal(const Matrix& m, Signal from, Signal to, Triple p) {
  if (from == to) return p;
  if (from == Signal::gray)
    return to == Signal::rgb ? reelgrad::map_signal<Signal::gray, Signal::rgb>(m, p)
                             : reelgrad::map_signal<Signal::gray, Signal::ycc>(m, p);
  if (from == Signal::rgb)
    return to == Signal::gray ? reelgrad::map_signal<Signal::rgb, Signal::gray>(m, p)
                              : reelgrad::map_signal<Signal::rgb, Signal::ycc>(m, p);
  return to == Signal::gray ? p : reelgrad::map_signal<Signal::ycc, Signal::rgb>(m, p);
}

inline void check_launch(const char* kernel) {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return;
  const ErrorKind kind = error == cudaErrorMemoryAllocation ? ErrorKind::out_of_memory : ErrorKind::failed;
  throw Error(kind, std::string("launching the CUDA kernel ") + kernel + ": " + cudaGetErrorString(error));
}

// Call `launch` with the storage, or the element type, as a constant.
template <class Launch>
void with_storage(Storage storage, Launch launch) {
  if (storage == Storage::u8) return launch(std::integral_constant<Storage, Storage::u8>{});
  if (storage == Storage::u16) return launch(std::integral_constant<Storage, Storage::u16>{});
  if (storage == Storage::half) return launch(std::integral_constant<Storage, Storage::half>{});
  return launch(std::integral_constant<Storage, Storage::single>{});
}

template <class Launch>
void with_element(ElementType element, Launch launch) {
  if (element == ElementType::f32) return launch(std::integral_constant<ElementType, ElementType::f32>{});
  if (element == ElementType::f16) return launch(std::integral_constant<ElementType, ElementType::f16>{});
  return launch(std::integral_constant<ElementType, ElementType::bf16>{});
}

__host__ __device__ constexpr unsigned blocks(int n, int block) {
  return static_cast<unsigned>((n + block - 1) / block);
}

}  // namespace reelgrad::cuda
