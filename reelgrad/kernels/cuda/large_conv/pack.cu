// Weights as large_conv() reads them: column of taps by column, in it tap by tap, and of a tap what each of a warp's
// threads holds of it, 16 bytes: the output channels lane / 4 and that + 8, of each the input channels 2 (lane % 4),
// the next, and those + 8.
#include <algorithm>

#include "reelgrad/kernels/cuda/conv/units.h"
#include "reelgrad/kernels/cuda/large_conv/tile.h"

namespace reelgrad::cuda {
namespace large {
namespace {

constexpr int kThreads = 256, kParts = kLargeTaps * kFragments;

struct PackParams {
  LargePacking job[kLargeMostPackings];
  ElementType element;
};

// Threads side by side read taps side by side.
__global__ void __launch_bounds__(kThreads) pack_kernel(const __grid_constant__ PackParams p) {
  ptx::wait_for_earlier_kernels();
  const LargePacking& job = p.job[blockIdx.y];
  const LargeWeights& w = job.weights;
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (i < kChannels)
    reinterpret_cast<float*>(static_cast<std::byte*>(job.packed) + kLargeWeightBytes)[i] =
        conv::vector_element(w.bias, i, kChannels);
  if (i >= kParts) return;
  const int tap = i % kLargeTaps, part = i / kLargeTaps;
  float values[kConvUnit];
#pragma unroll
  for (int k = 0; k < kConvUnit; ++k) {
    const int out = part / 4 + k / 4 * 8, in = part % 4 * 2 + k % 2 + k / 2 % 2 * 8;
    values[k] = conv::load(w.data, w.element, out * w.out_step + in * w.in_step + tap * w.tap_step);
  }
  const int place = tap % kSide * kSide + tap / kSide;
  static_cast<uint4*>(job.packed)[place * kFragments + part] = conv::narrowed_unit(values, p.element);
}

}  // namespace
}  // namespace large

void pack_large_weights(ElementType element, std::span<const LargePacking> packings, CUstream_st* stream) {
  using namespace large;
  if (packings.empty()) return;
  if (packings.size() > kLargeMostPackings) fail("pack_large_weights: too many convolutions at once");
  PackParams params{};
  params.element = element;
  std::ranges::copy(packings, params.job);
  conv::launch(pack_kernel, "pack_large_weights",
               dim3(blocks(kParts, kThreads), static_cast<unsigned>(packings.size())), kThreads, 0, params, stream);
}

}  // namespace reelgrad::cuda
