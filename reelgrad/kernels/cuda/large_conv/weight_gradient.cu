// Gradients of weights and bias: for each tap the sum over pixels of x, moved by the tap, times dy. Channels of x are
// the rows of the results, channels of dy the columns, and what is summed over are 16 pixels of a row at a time.
//
// A warp has one column of taps, and the sums of all its 17 taps in registers. It goes down a strip of 16 pixels'
// width and reads each row of x once, for the 17 rows of dy that it is paired with: they stay in registers, too, and
// the newest takes the place of the oldest. Rows arrive in a ring of the warp's own. All strips of all pictures, one
// below the other, are dealt to the warps in equal ranges. A block's warps add up what they have, each block writes
// its part, and a second kernel adds these parts, always in the same order.
#include <algorithm>
#include <string>

#include "reelgrad/kernels/cuda/large_conv/tile.h"

namespace reelgrad::cuda {
namespace large {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * 32, kBlocksEach = 2;            // a multiprocessor
constexpr int kRowBytes = kStrip * kPixelBytes, kStageBytes = 2 * kRowBytes;  // of x, and of dy
constexpr int kStages = 12, kRingBytes = kStages * kStageBytes;
constexpr int kSumUnits = kSide * 2;                        // float4 of a thread
constexpr int kColumnUnits = kSumUnits * 32;                // of a column of taps
constexpr int kPartUnits = kSide * kColumnUnits;            // of all
constexpr int kMeetBytes = kWarps / 2 * kColumnUnits * 16;  // where warps meet: half of them have a place
constexpr int kSumBytes = std::max(kMeetBytes, kWarps* kRingBytes);
constexpr int kSharedBytes = kSumBytes + kWarps * kChannels * static_cast<int>(sizeof(float));

struct GradientParams {
  ConvPicture x, dy;
  int x_step, dy_step;  // from row to row, bytes
  int strips, ranges;   // strips of one picture
  float4* parts;
  float* bias_parts;
};

// One instruction adds the product of two numbers of 32 bits to an address.
int row_bytes(const ConvPicture& p) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  if (p.row_step >= kMost)
    fail("large_gradients: rows of " + std::to_string(p.row_step) + " elements, fewer than 2^30");
  return static_cast<int>(2 * p.row_step);
}

int range_count() {
  return std::max(1, kBlocksEach * conv::multiprocessors() / kSide);
}

// What a warp has: of each tap of its column 16 × 16 sums, and of its strips' dy, by pixels that the threads have.
struct Sums {
  float taps[kSide][2][4] = {};
  float bias[2] = {};
};

// Until nothing is on its way to the warp's ring, and all have read what was in it: it can be used otherwise.
__device__ __forceinline__ void finish_copies() {
  mma::wait_copies<0>();
  __syncwarp();
}

// Rows of x and dy of a strip on their way to the warp's ring. Row `first` of x comes at step 16, since the rows of dy
// that are paired with it, eight above and eight below, begin at step 0. What is not needed becomes zeros: there is
// nothing to decide at a step.
class Rows {
 public:
  // `count` rows of x from `first` on.
  __device__ Rows(const GradientParams& p, std::uint32_t ring, int column, int strip, int first, int count)
      : row_(first - kReach), first_(first), x_step_(p.x_step), dy_step_(p.dy_step) {
    const int n = strip / p.strips, pixel = lane() / kPixelUnits, unit = lane() % kPixelUnits;
    const int at = strip % p.strips * kStrip + pixel, seen = at + column - kReach;
    to_ = ring + unit_offset(pixel, unit);
    x_rows_ = seen >= 0 && seen < p.x.width && at < p.dy.width ? count : 0;
    dy_rows_ = at < p.dy.width ? min(p.dy.height, first + count + kReach) : 0;
    x_ = reinterpret_cast<const std::byte*>(pixel_at(p.x, n, 0, seen) + unit * kConvUnit);
    dy_ = reinterpret_cast<const std::byte*>(pixel_at(p.dy, n, 0, at) + unit * kConvUnit);
    finish_copies();
#pragma unroll 1
    for (int step = 0; step + 1 < kStages; ++step) bring();
  }

  // Until the rows of the next step are there -> where in the ring.
  __device__ __forceinline__ int next() {
    mma::wait_copies<kStages - 2>();
    __syncwarp();  // they are there for all, and the place of the step before is free
    bring();
    return stage_;
  }

 private:
  __device__ __forceinline__ void bring() {
    const std::uint32_t to = to_ + stage_;
    const int x_row = row_ - kReach;
    const bool has_x = static_cast<unsigned>(x_row - first_) < static_cast<unsigned>(x_rows_);
    const bool has_dy = static_cast<unsigned>(row_) < static_cast<unsigned>(dy_rows_);
    mma::copy_unit(to, x_ + std::int64_t{x_row} * x_step_, has_x ? kUnitBytes : 0);
    mma::copy_unit(to + kRowBytes, dy_ + std::int64_t{row_} * dy_step_, has_dy ? kUnitBytes : 0);
    mma::commit_copies();
    ++row_;
    stage_ = stage_ + kStageBytes < kRingBytes ? stage_ + kStageBytes : 0;
  }

  std::uint32_t to_;
  int stage_ = 0;  // where the next rows go; after that it is where the oldest are
  int row_;        // of dy, that is brought next
  int first_, x_rows_, dy_rows_, x_step_, dy_step_;
  const std::byte *x_, *dy_;
};

template <class T>
__device__ __forceinline__ void add_pixels(float (&bias)[2], const std::uint32_t (&dy)[4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float2 a = conv::parted<T>(dy[2 * half]), b = conv::parted<T>(dy[2 * half + 1]);
    bias[half] += (a.x + a.y) + (b.x + b.y);
  }
}

template <class T, bool kBias>
__device__ __forceinline__ void walk_down(Sums& d, Rows rows, std::uint32_t ring, int count) {
  const int matrix = lane() / 8, row_of_matrix = lane() % 8;
  const std::uint32_t x_part = ring + unit_offset(matrix / 2 * 8 + row_of_matrix, matrix % 2);
  const std::uint32_t dy_part = ring + kRowBytes + unit_offset(matrix % 2 * 8 + row_of_matrix, matrix / 2);
  std::uint32_t dy[kSide][4], x[4], next[4];
#pragma unroll
  for (int step = 0; step < kRim; ++step) ptx::load_transposed(rows.next() + dy_part, dy[step]);
  const int first = rows.next();
  ptx::load_transposed(first + dy_part, dy[kRim]);
  ptx::load_transposed(first + x_part, x);
  const auto multiply = [&](int tap, int oldest) {
    const std::uint32_t(&row)[4] = dy[(oldest + kRim - tap) % kSide];
    mma::multiply<T>(d.taps[tap][0], x, row[0], row[1]);
    mma::multiply<T>(d.taps[tap][1], x, row[2], row[3]);
  };
#pragma unroll 1
  while (count > 0) {
#pragma unroll
    for (int oldest = 0; oldest < kSide; ++oldest) {
      if constexpr (kBias) add_pixels<T>(d.bias, dy[(oldest + kReach) % kSide]);
      multiply(kRim, oldest);
      const int stage = rows.next();  // which come while this one is multiplied
      ptx::load_transposed(stage + dy_part, dy[oldest]);
      ptx::load_transposed(stage + x_part, next);
#pragma unroll
      for (int tap = kRim - 1; tap >= 0; --tap) multiply(tap, oldest);
      if (--count == 0) break;
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] = next[i];
    }
  }
}

// Half of the warps hand over to the other half until the first has all.
__device__ __forceinline__ void meet(Sums& d, float4* places) {
#pragma unroll 1
  for (int left = kWarps / 2; left > 0; left /= 2) {
    __syncthreads();
    float4* const place = places + warp() % left * kColumnUnits + lane();
    if (warp() >= left && warp() < 2 * left) {
#pragma unroll
      for (int i = 0; i < kSumUnits; ++i) {
        const float(&v)[4] = d.taps[i / 2][i % 2];
        place[i * 32] = {v[0], v[1], v[2], v[3]};
      }
    }
    __syncthreads();
    if (warp() < left) {
#pragma unroll
      for (int i = 0; i < kSumUnits; ++i) {
        float(&v)[4] = d.taps[i / 2][i % 2];
        const float4 other = place[i * 32];
        v[0] += other.x;
        v[1] += other.y;
        v[2] += other.z;
        v[3] += other.w;
      }
    }
  }
}

// Channel lane / 4 and that + 8 of the warp, added up over the threads that share them.
__device__ __forceinline__ void put_bias(const Sums& d, float* of_warps) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = d.bias[half];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    if (lane() % 4 == 0) of_warps[warp() * kChannels + 8 * half + lane() / 4] = sum;
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads, kBlocksEach) gradient_kernel(const __grid_constant__ GradientParams p) {
  extern __shared__ __align__(16) std::uint8_t shared_bytes[];
  ptx::wait_for_earlier_kernels();
  const int column = static_cast<int>(blockIdx.x) % kSide, range = static_cast<int>(blockIdx.x) / kSide;
  const std::int64_t all = std::int64_t{p.x.batch} * p.strips * p.x.height, shares = p.ranges * kWarps;
  const std::int64_t share = range * kWarps + warp(), end = all * (share + 1) / shares;
  const std::uint32_t ring = ptx::shared_address(shared_bytes) + warp() * kRingBytes;
  Sums d;
  for (std::int64_t at = all * share / shares; at < end;) {
    const int strip = static_cast<int>(at / p.x.height), first = static_cast<int>(at % p.x.height);
    const int count = static_cast<int>(min(std::int64_t{p.x.height - first}, end - at));
    const Rows rows(p, ring, column, strip, first, count);
    column == 0 ? walk_down<T, true>(d, rows, ring, count) : walk_down<T, false>(d, rows, ring, count);
    at += count;
  }
  auto* const of_warps = reinterpret_cast<float*>(shared_bytes + kSumBytes);
  finish_copies();
  put_bias(d, of_warps);
  meet(d, reinterpret_cast<float4*>(shared_bytes));
  if (warp() > 0) return;
  float4* const part = p.parts + std::int64_t{range} * kPartUnits + column * kColumnUnits + lane();
#pragma unroll
  for (int i = 0; i < kSumUnits; ++i) {
    const float(&v)[4] = d.taps[i / 2][i % 2];
    part[i * 32] = {v[0], v[1], v[2], v[3]};
  }
  if (column > 0 || lane() >= kChannels) return;
  float bias = 0;
  for (int i = 0; i < kWarps; ++i) bias += of_warps[i * kChannels + lane()];
  p.bias_parts[range * kChannels + lane()] = bias;
}

constexpr int kPartsAtOnce = 16;  // of a thread, on their way: all there are on most cards

struct AddParams {
  LargeGradients to;
  const float4* parts;
  const float* bias_parts;
  int ranges;
};

__global__ void __launch_bounds__(kThreads) add_kernel(const __grid_constant__ AddParams p) {
  ptx::wait_for_earlier_kernels();
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (i < kChannels && p.to.bias != nullptr) {
    float sum = 0;
    for (int range = 0; range < p.ranges; ++range) sum += p.bias_parts[range * kChannels + i];
    p.to.bias[i] = sum;
  }
  if (i >= kPartUnits || p.to.weight == nullptr) return;
  float4 sum{0, 0, 0, 0};
  for (int first = 0; first < p.ranges; first += kPartsAtOnce) {
    float4 parts[kPartsAtOnce];
#pragma unroll
    for (int k = 0; k < kPartsAtOnce; ++k)
      if (first + k < p.ranges) parts[k] = __ldcg(p.parts + std::int64_t{first + k} * kPartUnits + i);
#pragma unroll
    for (int k = 0; k < kPartsAtOnce; ++k)
      if (first + k < p.ranges) sum = {sum.x + parts[k].x, sum.y + parts[k].y, sum.z + parts[k].z, sum.w + parts[k].w};
  }
  const int thread = i % 32, half = i / 32 % 2, tap = i / 64 % kSide * kSide + i / kColumnUnits;
  const int in = thread / 4, out = half * 8 + thread % 4 * 2;
  float* const to = p.to.weight + out * p.to.out_step + in * p.to.in_step + tap * p.to.tap_step;
  to[0] = sum.x;
  to[p.to.out_step] = sum.y;
  to[8 * p.to.in_step] = sum.z;
  to[8 * p.to.in_step + p.to.out_step] = sum.w;
}

}  // namespace
}  // namespace large

std::size_t large_gradient_bytes() {
  using namespace large;
  return static_cast<std::size_t>(range_count()) * (kPartUnits * sizeof(float4) + kChannels * sizeof(float));
}

void large_gradients(ElementType element, const LargeGradients& g, void* workspace, CUstream_st* stream) {
  using namespace large;
  auto* const parts = static_cast<float4*>(workspace);
  const int ranges = range_count();
  auto* const bias_parts = reinterpret_cast<float*>(parts + std::int64_t{ranges} * kPartUnits);
  const GradientParams params{.x = g.x,
                              .dy = g.dy,
                              .x_step = row_bytes(g.x),
                              .dy_step = row_bytes(g.dy),
                              .strips = (g.x.width + kStrip - 1) / kStrip,
                              .ranges = ranges,
                              .parts = parts,
                              .bias_parts = bias_parts};
  const auto kernel =
      conv::with_type(element, [](auto type) { return gradient_kernel<typename decltype(type)::type>; });
  conv::launch(kernel, "large_gradients", dim3(static_cast<unsigned>(ranges * kSide)), kThreads, kSharedBytes, params,
               stream);
  conv::launch(add_kernel, "large_gradients", dim3(blocks(kPartUnits, kThreads)), kThreads, 0,
               AddParams{g, parts, bias_parts, ranges}, stream);
}

}  // namespace reelgrad::cuda
