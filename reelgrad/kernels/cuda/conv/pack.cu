// Weights as the tensor cores want them, and channels put together: what comes before and after the convolutions.
#include <algorithm>

#include "reelgrad/kernels/cuda/conv/launch.h"
#include "reelgrad/kernels/cuda/conv/units.h"

namespace reelgrad::cuda {
namespace conv {
namespace {

constexpr int kThreads = 256;

struct PackParams {
  ConvPacking job[kConvMostPackings];
  ElementType element;
};

// Eight input channels of one output channel and tap: unit u of row `row`, which counts blocks of output channels, of
// 64 input channels, taps, and the block's output channels.
__device__ void pack_unit(const ConvPacking& job, ElementType element, int row, int u) {
  const ConvWeights& w = job.weights;
  const int in_blocks = conv_blocks(w.in, kConvBlock);
  const int in_block = row % job.block, tap = row / job.block % kTaps, group = row / job.block / kTaps;
  const int out = group / in_blocks * job.block + in_block, first_in = group % in_blocks * kConvBlock + u * kConvUnit;
  float values[kConvUnit];
#pragma unroll
  for (int i = 0; i < kConvUnit; ++i) {
    const int in = first_in + i;
    const bool inside = out < w.out && in < w.in;
    values[i] = inside ? load(w.weight, w.element, out * w.out_step + in * w.in_step + tap * w.tap_step) : 0.f;
  }
  static_cast<uint4*>(job.packed)[row * kPixelUnits + (u ^ (in_block % 8))] = narrowed_unit(values, element);
}

__global__ void __launch_bounds__(kThreads) pack_kernel(const __grid_constant__ PackParams p) {
  ptx::wait_for_earlier_kernels();
  const ConvPacking& job = p.job[blockIdx.y];
  const int blocks = conv_blocks(job.weights.out, job.block), padded = blocks * job.block;
  const int rows = padded * kTaps * conv_blocks(job.weights.in, kConvBlock), units = rows * kPixelUnits;
  const int first = static_cast<int>(blockIdx.x * kThreads + threadIdx.x),
            stride = static_cast<int>(gridDim.x) * kThreads;
  for (int i = first; i < units; i += stride) pack_unit(job, p.element, i / kPixelUnits, i % kPixelUnits);
  auto* const vectors = reinterpret_cast<float*>(static_cast<std::byte*>(job.packed) + std::size_t{16} * units);
  for (int i = first; i < padded; i += stride) {
    vectors[i] = vector_element(job.weights.bias, i, job.weights.out);
    vectors[padded + i] = vector_element(job.weights.slope, i, job.weights.out);
  }
}

struct TakeParams {
  ConvTensor from;
  ConvPicture to;
  int channels;
  ElementType element;
};

// One thread eight channels of a pixel.
__global__ void __launch_bounds__(kThreads) take_kernel(const __grid_constant__ TakeParams p) {
  ptx::wait_for_earlier_kernels();
  const int units = p.to.channels / kConvUnit;
  const std::int64_t count = std::int64_t{p.to.batch} * p.to.height * p.to.width * units;
  const std::int64_t stride = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t at = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; at < count; at += stride) {
    const int unit = static_cast<int>(at % units);
    const Pixel pixel = pixel_at(p.to, at / units);
    float values[kConvUnit];
    gather_unit(p.from, p.channels, /*scale=*/1, pixel, unit, values);
    *unit_of(p.to, pixel, unit) = narrowed_unit(values, p.element);
  }
}

}  // namespace
}  // namespace conv

void pack_weights(ElementType element, std::span<const ConvPacking> packings, CUstream_st* stream) {
  using namespace conv;
  if (packings.empty()) return;
  if (packings.size() > kConvMostPackings) fail("pack_weights: too many convolutions at once");
  PackParams params{};
  params.element = element;
  std::ranges::copy(packings, params.job);
  constexpr unsigned kBlocksEach = 18;  // one unit a thread for 64 output channels
  launch(pack_kernel, "pack_weights", dim3(kBlocksEach, static_cast<unsigned>(packings.size())), kThreads, 0, params,
         stream);
}

void take_channels(const ConvTensor& from, int channels, ElementType element, const ConvPicture& to,
                   CUstream_st* stream) {
  using namespace conv;
  if (to.channels % kConvUnit != 0) fail("take_channels: channels must be a multiple of 8");
  const std::int64_t units = std::int64_t{to.batch} * to.height * to.width * (to.channels / kConvUnit);
  const std::int64_t blocks = (units + kThreads - 1) / kThreads, most = 16LL * multiprocessors();
  launch(take_kernel, "take_channels", dim3(static_cast<unsigned>(std::min(blocks, most))), kThreads, 0,
         TakeParams{from, to, channels, element}, stream);
}

}  // namespace reelgrad::cuda
