// The activations and their derivatives, on float32.
#pragma once
#include <cuda_runtime.h>

#include "reelgrad/kernels/conv.h"

namespace reelgrad::cuda::conv {

// Each: value(v, slope), and derivative(v, slope) of what it took. What is not a number stays so.
struct Slope {
  static __device__ __forceinline__ float value(float v, float slope) { return v > 0 ? v : slope * v; }
  static __device__ __forceinline__ float derivative(float v, float slope) { return v > 0 ? 1.f : slope; }
};

struct Relu {
  static __device__ __forceinline__ float value(float v, float) { return v <= 0 ? 0.f : v; }
  static __device__ __forceinline__ float derivative(float v, float) { return v > 0 ? 1.f : 0.f; }
};

struct None {
  static __device__ __forceinline__ float value(float v, float) { return v; }
  static __device__ __forceinline__ float derivative(float, float) { return 1; }
};

__device__ __forceinline__ float logistic(float v) {
  return __fdividef(1.f, 1.f + __expf(-v));
}

struct Sigmoid {
  static __device__ __forceinline__ float value(float v, float) { return logistic(v); }
  static __device__ __forceinline__ float derivative(float v, float) {
    const float s = logistic(v);
    return s * (1 - s);
  }
};

struct Silu {
  static __device__ __forceinline__ float value(float v, float) { return v * logistic(v); }
  static __device__ __forceinline__ float derivative(float v, float) {
    const float s = logistic(v);
    return s * (1 + v * (1 - s));
  }
};

// v tanh(log(1 + e^v)) = v n / (n + 2) with n = e^v (e^v + 2); from 20 on float32 has v itself.
struct Mish {
  static __device__ __forceinline__ float value(float v, float) {
    const float e = __expf(fminf(v, 20.f)), n = e * (e + 2);
    return v > 20 ? v : v * __fdividef(n, n + 2);
  }
  static __device__ __forceinline__ float derivative(float v, float) {
    const float e = __expf(fminf(v, 20.f)), n = e * (e + 2), t = __fdividef(n, n + 2);
    const float s = __fdividef(e, 1 + e);
    return v > 20 ? 1.f : t + v * s * (1 - t * t);
  }
};

// v Φ(v)
struct Gelu {
  static constexpr float kRootHalf = 0.70710678f, kDensity = 0.39894228f;  // √½, 1 / √(2π)
  static __device__ __forceinline__ float value(float v, float) { return 0.5f * v * (1 + erff(v * kRootHalf)); }
  static __device__ __forceinline__ float derivative(float v, float) {
    return 0.5f * (1 + erff(v * kRootHalf)) + v * kDensity * __expf(-0.5f * v * v);
  }
};

// Calls `use` with the activation's type; it is uniform over a launch.
template <class Use>
__device__ __forceinline__ void with_activation(ConvActivation activation, Use use) {
  switch (activation) {
    case ConvActivation::none:
      return use(None{});
    case ConvActivation::relu:
      return use(Relu{});
    case ConvActivation::slope:
      return use(Slope{});
    case ConvActivation::silu:
      return use(Silu{});
    case ConvActivation::mish:
      return use(Mish{});
    case ConvActivation::gelu:
      return use(Gelu{});
    case ConvActivation::sigmoid:
      return use(Sigmoid{});
  }
}

}  // namespace reelgrad::cuda::conv
