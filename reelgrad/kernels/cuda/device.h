// What the kernels share: access to samples in their storage, and launch checks.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <string>

#include "reelgrad/base/error.h"
#include "reelgrad/kernels/conversion.h"

namespace reelgrad::cuda {

template <Storage storage>
__device__ __forceinline__ float load_sample(const CodeRange& range, const std::byte* row, int x) {
  if constexpr (storage == Storage::u8)
    return value_of_code(range, static_cast<float>(reinterpret_cast<const std::uint8_t*>(row)[x]));
  if constexpr (storage == Storage::u16)
    return value_of_code(range, static_cast<float>(reinterpret_cast<const std::uint16_t*>(row)[x]));
  if constexpr (storage == Storage::half) return single_of_half(reinterpret_cast<const std::uint16_t*>(row)[x]);
  return reinterpret_cast<const float*>(row)[x];
}

template <Storage storage>
__device__ __forceinline__ void store_sample(const CodeRange& range, float value, std::byte* row, int x) {
  if constexpr (storage == Storage::u8)
    reinterpret_cast<std::uint8_t*>(row)[x] = static_cast<std::uint8_t>(code_of_value(range, value));
  else if constexpr (storage == Storage::u16)
    reinterpret_cast<std::uint16_t*>(row)[x] = static_cast<std::uint16_t>(code_of_value(range, value));
  else if constexpr (storage == Storage::half)
    reinterpret_cast<std::uint16_t*>(row)[x] = half_of_single(value);
  else
    reinterpret_cast<float*>(row)[x] = value;
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
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess)
    fail(std::string("launching the CUDA kernel ") + kernel + ": " + cudaGetErrorString(error));
}

// Calls `launch` with the storage as a constant.
template <class Launch>
void with_storage(Storage storage, Launch launch) {
  if (storage == Storage::u8) return launch(std::integral_constant<Storage, Storage::u8>{});
  if (storage == Storage::u16) return launch(std::integral_constant<Storage, Storage::u16>{});
  if (storage == Storage::half) return launch(std::integral_constant<Storage, Storage::half>{});
  return launch(std::integral_constant<Storage, Storage::single>{});
}

constexpr unsigned blocks(int n, int block) {
  return static_cast<unsigned>((n + block - 1) / block);
}

}  // namespace reelgrad::cuda
