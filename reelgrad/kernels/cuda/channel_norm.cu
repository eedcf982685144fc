// Layer norm over channels. A thread has 8 of them, 16 bytes, and so many threads side by side that they have all have
// a pixel; a warp has several pixels at once. Everything is read once. What the way back needs of the pixel's values is
// made again from them.
#include "reelgrad/kernels/channel_norm.h"

#include <algorithm>

#include "reelgrad/kernels/cuda/conv/launch.h"
#include "reelgrad/kernels/cuda/conv/multiply.h"
#include "reelgrad/kernels/cuda/conv/units.h"

namespace reelgrad::cuda {
namespace norm {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * 32;
constexpr int kAtOnce = 4;                     // pixels of a thread, on their way
constexpr int kMostBlocks = 528;               // four on each of 132 multiprocessors
constexpr int kAddColumns = 32, kAddRows = 8;  // threads that add the blocks' sums

using Values = float[kConvUnit];

__device__ __forceinline__ int lane() {
  return static_cast<int>(threadIdx.x) % 32;
}

// The sum over kLanes threads side by side, for all of them.
template <int kLanes>
__device__ __forceinline__ float sum_of(float v) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
  return v;
}

template <class T>
__device__ __forceinline__ void widen(const uint4& bits, Values& values) {
  const std::uint32_t pairs[kConvUnit / 2] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int i = 0; i < kConvUnit / 2; ++i) {
    const float2 pair = conv::parted<T>(pairs[i]);
    values[2 * i] = pair.x;
    values[2 * i + 1] = pair.y;
  }
}

template <class T>
__device__ __forceinline__ uint4 narrow(const Values& v) {
  return {conv::joined<T>(v[0], v[1]), conv::joined<T>(v[2], v[3]), conv::joined<T>(v[4], v[5]),
          conv::joined<T>(v[6], v[7])};
}

// Which pixels a thread has, and which 8 of their channels. All of a warp's threads take all steps together.
template <int kLanes>
struct Share {
  static constexpr int kPixels = 32 / kLanes;  // of a warp, at once
  int units, unit = lane() % kLanes;
  std::int64_t count, first, step;

  __device__ explicit Share(const Pixels& x)
      : units(x.channels / kConvUnit),
        count(x.count),
        first((std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32) * kPixels * kAtOnce),
        step(std::int64_t{gridDim.x} * kWarps * kPixels * kAtOnce) {}

  __device__ __forceinline__ bool has_unit() const { return unit < units; }
  // The k-th of those that begin at `at`.
  __device__ __forceinline__ std::int64_t pixel(std::int64_t at, int k) const {
    return at + k * kPixels + lane() / kLanes;
  }
  __device__ __forceinline__ bool has(std::int64_t at, int k) const { return has_unit() && pixel(at, k) < count; }
  __device__ __forceinline__ uint4* place(const Pixels& p, std::int64_t at, int k) const {
    return static_cast<uint4*>(p.data) + pixel(at, k) * units + unit;
  }
  __device__ __forceinline__ void read(const Pixels& p, std::int64_t at, uint4 (&bits)[kAtOnce]) const {
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) bits[k] = has(at, k) ? __ldg(place(p, at, k)) : uint4{0, 0, 0, 0};
  }
  __device__ __forceinline__ void read(const ConvVector& v, Values& values) const {
#pragma unroll
    for (int i = 0; i < kConvUnit; ++i) values[i] = conv::vector_element(v, unit * kConvUnit + i, units * kConvUnit);
  }
};

// `values` of a pixel become those less their mean and divided by their deviation -> one divided by that.
template <int kLanes>
__device__ __forceinline__ float normalize(Values& values, const Share<kLanes>& share, float epsilon) {
  const float part = 1.f / static_cast<float>(share.units * kConvUnit);
  float sum = 0, squares = 0;
#pragma unroll
  for (int i = 0; i < kConvUnit; ++i) sum += values[i];
  const float mean = sum_of<kLanes>(sum) * part;
#pragma unroll
  for (int i = 0; i < kConvUnit; ++i) {
    values[i] = share.has_unit() ? values[i] - mean : 0.f;
    squares += values[i] * values[i];
  }
  const float scale = rsqrtf(sum_of<kLanes>(squares) * part + epsilon);
#pragma unroll
  for (int i = 0; i < kConvUnit; ++i) values[i] *= scale;
  return scale;
}

template <class T, int kLanes>
__global__ void __launch_bounds__(kThreads) forward_kernel(const __grid_constant__ ChannelNorm p) {
  ptx::wait_for_earlier_kernels();
  const Share<kLanes> share(p.x);
  Values weight, bias;
  share.read(p.weight, weight);
  share.read(p.bias, bias);
  for (std::int64_t at = share.first; at < share.count; at += share.step) {
    uint4 bits[kAtOnce];
    share.read(p.x, at, bits);
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      Values values;
      widen<T>(bits[k], values);
      normalize(values, share, p.epsilon);
#pragma unroll
      for (int i = 0; i < kConvUnit; ++i) values[i] = values[i] * weight[i] + bias[i];
      if (share.has(at, k)) *share.place(p.y, at, k) = narrow<T>(values);
    }
  }
}

struct BackwardParams {
  ChannelNormBackward norm;
  float* rows;  // of each block: the weights' sums, then the biases'
};

// `inner`: dy times the weights -> dx.
template <int kLanes>
__device__ __forceinline__ void to_input(Values& inner, const Values& normed, float scale, int channels) {
  float sum = 0, product = 0;
#pragma unroll
  for (int i = 0; i < kConvUnit; ++i) {
    sum += inner[i];
    product += inner[i] * normed[i];
  }
  const float part = 1.f / static_cast<float>(channels);
  sum = sum_of<kLanes>(sum) * part;
  product = sum_of<kLanes>(product) * part;
#pragma unroll
  for (int i = 0; i < kConvUnit; ++i) inner[i] = scale * (inner[i] - sum - normed[i] * product);
}

// The sums of the block's threads that have the same channels, to its row.
template <int kLanes>
__device__ __forceinline__ void write_sums(Values (&sums)[2], const Share<kLanes>& share, float* rows) {
  __shared__ float of_warps[kWarps][2][kLanes * kConvUnit];
#pragma unroll
  for (int which = 0; which < 2; ++which)
#pragma unroll
    for (int i = 0; i < kConvUnit; ++i) {
      float sum = sums[which][i];
#pragma unroll
      for (int step = 16; step >= kLanes; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
      if (lane() < kLanes) of_warps[threadIdx.x / 32][which][share.unit * kConvUnit + i] = sum;
    }
  __syncthreads();
  const int channels = share.units * kConvUnit;
  for (int i = static_cast<int>(threadIdx.x); i < 2 * channels; i += kThreads) {
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) sum += of_warps[warp][i / channels][i % channels];
    rows[std::int64_t{blockIdx.x} * 2 * channels + i] = sum;
  }
}

template <class T, int kLanes>
__global__ void __launch_bounds__(kThreads) backward_kernel(const __grid_constant__ BackwardParams p) {
  ptx::wait_for_earlier_kernels();
  const ChannelNormBackward& n = p.norm;
  const Share<kLanes> share(n.x);
  Values weight, sums[2] = {};
  share.read(n.weight, weight);
  for (std::int64_t at = share.first; at < share.count; at += share.step) {
    uint4 x[kAtOnce], dy[kAtOnce];
    share.read(n.x, at, x);
    share.read(n.dy, at, dy);
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      Values normed, gradient;
      widen<T>(x[k], normed);
      widen<T>(dy[k], gradient);
      const float scale = normalize(normed, share, n.epsilon);
#pragma unroll
      for (int i = 0; i < kConvUnit; ++i) {
        sums[0][i] += gradient[i] * normed[i];
        sums[1][i] += gradient[i];
        gradient[i] *= weight[i];
      }
      if (n.dx.data == nullptr) continue;
      to_input<kLanes>(gradient, normed, scale, n.x.channels);
      if (share.has(at, k)) *share.place(n.dx, at, k) = narrow<T>(gradient);
    }
  }
  write_sums(sums, share, p.rows);
}

struct AddParams {
  const float* rows;
  int row_count, channels;
  float *of_weight, *of_bias;
};

__global__ void __launch_bounds__(kAddColumns* kAddRows) add_kernel(const __grid_constant__ AddParams p) {
  __shared__ float sums[kAddRows][kAddColumns];
  ptx::wait_for_earlier_kernels();
  const int column = lane(), group = static_cast<int>(threadIdx.x) / kAddColumns;
  const int i = static_cast<int>(blockIdx.x) * kAddColumns + column;
  float sum = 0;
  if (i < 2 * p.channels) {
#pragma unroll 8
    for (int row = group; row < p.row_count; row += kAddRows) sum += __ldcg(p.rows + row * 2 * p.channels + i);
  }
  sums[group][column] = sum;
  __syncthreads();
  if (group != 0 || i >= 2 * p.channels) return;
#pragma unroll
  for (int other = 1; other < kAddRows; ++other) sum += sums[other][column];
  float* const to = i < p.channels ? p.of_weight : p.of_bias;
  if (to != nullptr) to[i % p.channels] = sum;
}

void require_pixels(const Pixels& x) {
  if (x.channels > 0 && x.channels <= kChannelNormMost && x.channels % kConvUnit == 0) return;
  fail("channel_norm: " + std::to_string(x.channels) + " channels, allowed: a multiple of 8 up to 256");
}

// Calls `use` with the threads that a pixel has, as a constant.
template <class Use>
auto with_lanes(int channels, Use use) {
  const int units = channels / kConvUnit;
  if (units <= 2) return use(std::integral_constant<int, 2>{});
  if (units <= 4) return use(std::integral_constant<int, 4>{});
  if (units <= 8) return use(std::integral_constant<int, 8>{});
  if (units <= 16) return use(std::integral_constant<int, 16>{});
  return use(std::integral_constant<int, 32>{});
}

int block_count(const Pixels& x) {
  const int lanes = with_lanes(x.channels, [](auto lanes) { return decltype(lanes)::value; });
  const std::int64_t at_once = std::int64_t{kThreads} / lanes * kAtOnce;
  return static_cast<int>(std::min<std::int64_t>(kMostBlocks, (x.count + at_once - 1) / at_once));
}

}  // namespace
}  // namespace norm

void channel_norm(const ChannelNorm& n, CUstream_st* stream) {
  using namespace norm;
  require_pixels(n.x);
  const auto kernel = conv::with_type(n.element, [&](auto type) {
    return with_lanes(n.x.channels,
                      [](auto lanes) { return forward_kernel<typename decltype(type)::type, decltype(lanes)::value>; });
  });
  conv::launch(kernel, "channel_norm", dim3(static_cast<unsigned>(block_count(n.x))), kThreads, 0, n, stream);
}

std::size_t channel_norm_bytes(int channels) {
  return std::size_t{norm::kMostBlocks} * 2 * static_cast<std::size_t>(channels) * sizeof(float);
}

void channel_norm_backward(const ChannelNormBackward& n, void* workspace, CUstream_st* stream) {
  using namespace norm;
  require_pixels(n.x);
  auto* const rows = static_cast<float*>(workspace);
  const auto kernel = conv::with_type(n.element, [&](auto type) {
    return with_lanes(n.x.channels, [](auto lanes) {
      return backward_kernel<typename decltype(type)::type, decltype(lanes)::value>;
    });
  });
  const int count = block_count(n.x);
  conv::launch(kernel, "channel_norm_backward", dim3(static_cast<unsigned>(count)), kThreads, 0,
               BackwardParams{n, rows}, stream);
  if (n.of_weight == nullptr && n.of_bias == nullptr) return;
  conv::launch(add_kernel, "channel_norm_backward", dim3(blocks(2 * n.x.channels, kAddColumns)), kAddColumns * kAddRows,
               0, AddParams{rows, count, n.x.channels, n.of_weight, n.of_bias}, stream);
}

}  // namespace reelgrad::cuda
