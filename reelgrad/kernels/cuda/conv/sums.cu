// Where gradients enter a row of convolutions, and the sums over pixels that biases and slopes take.
#include <algorithm>

#include "reelgrad/kernels/cuda/conv/activation.h"
#include "reelgrad/kernels/cuda/conv/launch.h"
#include "reelgrad/kernels/cuda/conv/units.h"

namespace reelgrad::cuda {
namespace conv {
namespace {

constexpr int kThreads = 256;

struct TopParams {
  ConvTopGradient top;
  ConvPicture together;  // dy, where its channels lie as dz's do; else no data
};

// A thread's channels, from its first on.
struct UnitSums {
  float bias[kConvUnit] = {}, slope[kConvUnit] = {};
};

template <class Function>
__device__ __forceinline__ void unit_gradient(const TopParams& p, const float (&slopes)[kConvUnit], const Pixel& pixel,
                                              int unit, UnitSums& sums, Function) {
  const ConvTopGradient& top = p.top;
  float g[kConvUnit], z[kConvUnit] = {}, dz[kConvUnit];
  if (p.together.data != nullptr)
    load_unit(p.together, top.element, pixel, unit, g);
  else
    gather_unit(top.dy, top.channels, top.scale, pixel, unit, g);
  if (top.z.data != nullptr) load_unit(top.z, top.element, pixel, unit, z);
#pragma unroll
  for (int i = 0; i < kConvUnit; ++i) {
    const bool there = unit * kConvUnit + i < top.channels;  // what z has beyond is anything
    g[i] *= top.factor;
    dz[i] = there ? g[i] * Function::derivative(z[i], slopes[i]) : 0.f;
    sums.bias[i] += dz[i];
    if (std::is_same_v<Function, Slope> && there && !(z[i] > 0)) sums.slope[i] += g[i] * z[i];
  }
  *unit_of(top.dz, pixel, unit) = narrowed_unit(dz, top.element);
}

__global__ void __launch_bounds__(kThreads) top_kernel(const __grid_constant__ TopParams p) {
  __shared__ float parts[2 * kConvUnit][kThreads];
  ptx::wait_for_earlier_kernels();
  const ConvTopGradient& top = p.top;
  const int units = top.dz.channels / kConvUnit, at_once = kThreads / units;
  const int thread = static_cast<int>(threadIdx.x), unit = thread % units;
  UnitSums sums;
  float slopes[kConvUnit];
#pragma unroll
  for (int i = 0; i < kConvUnit; ++i) slopes[i] = vector_element(top.slope, unit * kConvUnit + i, top.channels);
  const std::int64_t pixels = std::int64_t{top.dz.batch} * top.dz.height * top.dz.width;
  const std::int64_t first = std::int64_t{blockIdx.x} * at_once + thread / units,
                     stride = std::int64_t{gridDim.x} * at_once;
  for (std::int64_t pixel = first; pixel < pixels && thread < at_once * units; pixel += stride) {
    with_activation(top.activation,
                    [&](auto function) { unit_gradient(p, slopes, pixel_at(top.dz, pixel), unit, sums, function); });
  }
  if (top.sums == nullptr) return;
#pragma unroll
  for (int i = 0; i < kConvUnit; ++i) {
    parts[i][thread] = sums.bias[i];
    parts[kConvUnit + i][thread] = sums.slope[i];
  }
  __syncthreads();
  if (thread >= kConvSumRow) return;
  const int channel = thread % kConvBlock, of_slope = thread / kConvBlock;
  float sum = 0;
  if (channel < top.dz.channels)
    for (int t = channel / kConvUnit; t < at_once * units; t += units)
      sum += parts[of_slope * kConvUnit + channel % kConvUnit][t];
  top.sums[blockIdx.x * kConvSumRow + thread] = sum;
}

struct SumsParams {
  ConvSums job[kConvMostGradients];
};

constexpr int kSumGroups = 4;

// One block a convolution.
__global__ void __launch_bounds__(kSumGroups* kConvSumRow) sums_kernel(const __grid_constant__ SumsParams p) {
  __shared__ float parts[kSumGroups][kConvSumRow];
  ptx::wait_for_earlier_kernels();
  const ConvSums& job = p.job[blockIdx.x];
  const int column = threadIdx.x % kConvSumRow, group = threadIdx.x / kConvSumRow;
  float sum = 0;
#pragma unroll 8
  for (int row = group; row < job.row_count; row += kSumGroups) sum += job.rows[row * kConvSumRow + column];
  parts[group][column] = sum;
  __syncthreads();
  if (group != 0) return;
  for (int i = 1; i < kSumGroups; ++i) sum += parts[i][column];
  parts[0][column] = sum;
  const int channel = column % kConvBlock;
  const bool of_bias = column < kConvBlock;
  if (of_bias && job.bias != nullptr && channel < job.channels) job.bias[channel] = sum;
  if (!of_bias && job.slope != nullptr && job.slopes > 1 && channel < job.channels) job.slope[channel] = sum;
  if (job.slope == nullptr || job.slopes != 1) return;
  ptx::sync(1, kConvSumRow);
  if (column != 0) return;
  float all = 0;
  for (int c = 0; c < job.channels; ++c) all += parts[0][kConvBlock + c];
  *job.slope = all;
}

// dy as a picture, where it is one that can be read in units.
ConvPicture as_picture(const ConvTopGradient& top) {
  const ConvTensor& dy = top.dy;
  const auto in_units = [](std::int64_t step) { return step % kConvUnit == 0; };
  const bool together = dy.element == top.element && top.scale == 1 && dy.channel_step == 1 &&
                        top.channels == top.dz.channels && in_units(dy.column_step) && in_units(dy.row_step) &&
                        in_units(dy.image_step) && reinterpret_cast<std::uintptr_t>(dy.data) % 16 == 0;
  if (!together) return {};
  return {dy.data, top.dz.batch, top.dz.height, top.dz.width, top.channels, dy.column_step, dy.row_step, dy.image_step};
}

}  // namespace
}  // namespace conv

void conv_top_gradient(const ConvTopGradient& top, CUstream_st* stream) {
  using namespace conv;
  require_channels("conv_top_gradient", top.channels, top.dz.channels);
  if (top.dz.channels % kConvUnit != 0) fail("conv_top_gradient: channels must be a multiple of 8");
  TopParams params{top, as_picture(top)};
  if (top.z.data == nullptr) params.top.activation = ConvActivation::none;
  launch(top_kernel, "conv_top_gradient", dim3(kConvTopSumRows), kThreads, 0, params, stream);
}

void conv_add_sums(std::span<const ConvSums> sums, CUstream_st* stream) {
  using namespace conv;
  if (sums.size() > kConvMostGradients) fail("conv_add_sums: too many convolutions at once");
  SumsParams params{};
  std::ranges::copy(sums, params.job);
  launch(sums_kernel, "conv_add_sums", dim3(static_cast<unsigned>(sums.size())), kSumGroups * kConvSumRow, 0, params,
         stream);
}

}  // namespace reelgrad::cuda
