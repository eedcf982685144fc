// Where gradients enter a row of convolutions, and the sums over pixels that biases and slopes take.
#include <algorithm>

#include "reelgrad/kernels/cuda/conv/activation.h"
#include "reelgrad/kernels/cuda/conv/elements.h"
#include "reelgrad/kernels/cuda/conv/launch.h"
#include "reelgrad/kernels/cuda/conv/tile.h"

namespace reelgrad::cuda {
namespace conv {
namespace {

constexpr int kThreads = 256;
constexpr int kUnit = 8;  // channels of a thread: 16 bytes

struct TopParams {
  ConvTopGradient top;
  ConvPicture together;  // dy, where its channels lie as dz's do; else no data
};

__device__ float slope_of(const ConvVector& slope, int channel, int channels) {
  if (channel >= channels) return 0;
  return slope.data == nullptr ? slope.otherwise : load(slope.data, slope.element, slope.count == 1 ? 0 : channel);
}

__device__ std::int64_t place(const ConvPicture& picture, int n, int y, int x, int unit) {
  return n * picture.image_step + y * picture.row_step + x * picture.pixel_step + unit * kUnit;
}

// A thread's channels, from its first on.
struct UnitSums {
  float bias[kUnit] = {}, slope[kUnit] = {};
};

// Eight 16-bit elements that lie together.
__device__ __forceinline__ void load_unit(const ConvPicture& picture, ElementType element, int n, int y, int x,
                                          int unit, float (&values)[kUnit]) {
  const uint4 bits =
      *reinterpret_cast<const uint4*>(static_cast<const std::uint16_t*>(picture.data) + place(picture, n, y, x, unit));
  const std::uint32_t pairs[kUnit / 2] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int i = 0; i < kUnit / 2; ++i) {
    const float2 pair = element == ElementType::f16 ? parted<__half>(pairs[i]) : parted<__nv_bfloat16>(pairs[i]);
    values[2 * i] = pair.x;
    values[2 * i + 1] = pair.y;
  }
}

// Gradients from anywhere.
__device__ __forceinline__ void gather_unit(const ConvTopGradient& top, int n, int y, int x, int unit,
                                            float (&values)[kUnit]) {
  const int squared = top.scale * top.scale;
#pragma unroll
  for (int i = 0; i < kUnit; ++i) {
    const int channel = unit * kUnit + i, sub = channel % squared;
    const std::int64_t row = std::int64_t{y} * top.scale + sub / top.scale;
    const std::int64_t column = std::int64_t{x} * top.scale + sub % top.scale;
    values[i] = channel < top.channels ? load(top.dy.data, top.dy.element,
                                              n * top.dy.image_step + channel / squared * top.dy.channel_step +
                                                  row * top.dy.row_step + column * top.dy.column_step)
                                       : 0.f;
  }
}

template <class Function>
__device__ __forceinline__ void unit_gradient(const TopParams& p, const float (&slopes)[kUnit], int n, int y, int x,
                                              int unit, UnitSums& sums, Function) {
  const ConvTopGradient& top = p.top;
  float g[kUnit], z[kUnit] = {};
  if (p.together.data != nullptr)
    load_unit(p.together, top.element, n, y, x, unit, g);
  else
    gather_unit(top, n, y, x, unit, g);
  if (top.z.data != nullptr) load_unit(top.z, top.element, n, y, x, unit, z);
  alignas(16) std::uint16_t values[kUnit];
#pragma unroll
  for (int i = 0; i < kUnit; ++i) {
    const float gradient = g[i] * Function::derivative(z[i], slopes[i]);
    sums.bias[i] += gradient;
    if (std::is_same_v<Function, Slope> && !(z[i] > 0)) sums.slope[i] += g[i] * z[i];
    values[i] = narrowed(gradient, top.element);
  }
  *reinterpret_cast<uint4*>(static_cast<std::uint16_t*>(top.dz.data) + place(top.dz, n, y, x, unit)) =
      *reinterpret_cast<const uint4*>(values);
}

__global__ void __launch_bounds__(kThreads) top_kernel(const __grid_constant__ TopParams p) {
  __shared__ float parts[2 * kUnit][kThreads];
  ptx::wait_for_earlier_kernels();
  const ConvTopGradient& top = p.top;
  const int units = top.dz.channels / kUnit, at_once = kThreads / units;
  const int thread = static_cast<int>(threadIdx.x), unit = thread % units;
  UnitSums sums;
  float slopes[kUnit];
#pragma unroll
  for (int i = 0; i < kUnit; ++i) slopes[i] = slope_of(top.slope, unit * kUnit + i, top.channels);
  const std::int64_t pixels = std::int64_t{top.dz.batch} * top.dz.height * top.dz.width;
  const std::int64_t first = std::int64_t{blockIdx.x} * at_once + thread / units,
                     stride = std::int64_t{gridDim.x} * at_once;
  for (std::int64_t pixel = first; pixel < pixels && thread < at_once * units; pixel += stride) {
    const std::int64_t row = pixel / top.dz.width;
    const int x = static_cast<int>(pixel - row * top.dz.width), y = static_cast<int>(row % top.dz.height);
    const int n = static_cast<int>(row / top.dz.height);
    with_activation(top.activation, [&](auto function) { unit_gradient(p, slopes, n, y, x, unit, sums, function); });
  }
  if (top.sums == nullptr) return;
#pragma unroll
  for (int i = 0; i < kUnit; ++i) {
    parts[i][thread] = sums.bias[i];
    parts[kUnit + i][thread] = sums.slope[i];
  }
  __syncthreads();
  if (thread >= kConvSumRow) return;
  const int channel = thread % kConvBlock, of_slope = thread / kConvBlock;
  float sum = 0;
  if (channel < top.dz.channels)
    for (int t = channel / kUnit; t < at_once * units; t += units) sum += parts[of_slope * kUnit + channel % kUnit][t];
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
  const auto in_units = [](std::int64_t step) { return step % kUnit == 0; };
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
  if (top.dz.channels % kUnit != 0) fail("conv_top_gradient: channels must be a multiple of 8");
  launch(top_kernel, "conv_top_gradient", dim3(kConvTopSumRows), kThreads, 0, TopParams{top, as_picture(top)}, stream);
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
