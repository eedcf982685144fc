#include "reelgrad/kernels/gather.h"

#include <algorithm>

#include "reelgrad/kernels/cuda/device.h"

namespace reelgrad::cuda {
namespace {

constexpr int kJobsALaunch = 32;  // kernel parameters stay below the 4 KiB that every driver takes
constexpr int kBlockX = 32, kBlockY = 8;

struct Jobs {
  CropJob job[kJobsALaunch];
};
static_assert(sizeof(Jobs) + sizeof(Conversion) + 64 <= 4096);

// Chroma at luma position (x, y): rows first filtered along x, then along y, as cpu/gather.cpp does.
template <Storage storage>
__device__ float chroma_at(const Conversion& c, const PictureRef& picture, int plane, int x, int y) {
  const int width = picture.width >> c.up_x.log2, height = picture.height >> c.up_y.log2;
  const int nx = x >> c.up_x.log2, px = x & ((1 << c.up_x.log2) - 1);
  const int ny = y >> c.up_y.log2, py = y & ((1 << c.up_y.log2) - 1);
  const auto along_x = [&](int row_index) {
    const std::byte* row = picture.plane[plane] + picture.stride_bytes[plane] * row_index;
    if (c.up_x.log2 == 0) return load_sample<storage>(c.chroma, row, nx);
    float tap[kUpTaps];
    for (int t = 0; t < kUpTaps; ++t)
      tap[t] = load_sample<storage>(c.chroma, row, mirror(nx + c.up_x.first[px] + t, width));
    return weigh4(c.up_x.weight[px], tap[0], tap[1], tap[2], tap[3]);
  };
  if (c.up_y.log2 == 0) return along_x(ny);
  float tap[kUpTaps];
  for (int t = 0; t < kUpTaps; ++t) tap[t] = along_x(mirror(ny + c.up_y.first[py] + t, height));
  return weigh4(c.up_y.weight[py], tap[0], tap[1], tap[2], tap[3]);
}

template <Storage storage>
__device__ Triple load_pixel(const Conversion& c, const PictureRef& picture, int x, int y) {
  const auto sample = [&](int plane) {
    return load_sample<storage>(c.luma, picture.plane[plane] + picture.stride_bytes[plane] * y, x);
  };
  if (c.clip == Signal::rgb) return {sample(0), sample(1), sample(2)};
  if (c.clip == Signal::gray || c.network == Signal::gray) return {sample(0), 0, 0};
  return {sample(0), chroma_at<storage>(c, picture, 1, x, y), chroma_at<storage>(c, picture, 2, x, y)};
}

// One thread a pixel of the output, neighbours along its rows.
template <Storage storage>
__global__ void gather_kernel(const __grid_constant__ Conversion c, const __grid_constant__ Jobs jobs, int width,
                              int height) {
  const int out_x = blockIdx.x * kBlockX + threadIdx.x, out_y = blockIdx.y * kBlockY + threadIdx.y;
  if (out_x >= width || out_y >= height) return;
  const CropJob& job = jobs.job[blockIdx.z];
  const int turned_x = job.orientation.flip_x ? width - 1 - out_x : out_x;
  const int turned_y = job.orientation.flip_y ? height - 1 - out_y : out_y;
  const int x = job.orientation.transpose ? turned_y : turned_x, y = job.orientation.transpose ? turned_x : turned_y;

  const Triple in = load_pixel<storage>(c, job.source, job.x + x, job.y + y);
  const Triple out = map_signal(c.matrix, c.clip, c.network, in);
  const std::size_t plane = static_cast<std::size_t>(width) * height;
  float* pixel = job.out + static_cast<std::size_t>(out_y) * width + out_x;
  pixel[0] = out.a;
  if (c.network == Signal::gray) return;
  const float bias = c.network == Signal::ycc ? kNetworkChromaBias : 0.0f;
  pixel[plane] = out.b + bias;
  pixel[2 * plane] = out.c + bias;
}

}  // namespace

void gather(const GatherSpec& spec, std::span<const CropJob> jobs, CUstream_st* stream) {
  const Conversion c = make_conversion(spec.format, spec.color, spec.to);
  const dim3 block(kBlockX, kBlockY);
  for (std::size_t first = 0; first < jobs.size(); first += kJobsALaunch) {
    const auto chunk = jobs.subspan(first, std::min<std::size_t>(kJobsALaunch, jobs.size() - first));
    Jobs batch;
    std::copy(chunk.begin(), chunk.end(), batch.job);
    const dim3 grid(blocks(spec.width, kBlockX), blocks(spec.height, kBlockY), static_cast<unsigned>(chunk.size()));
    with_storage(c.storage, [&](auto storage) {
      gather_kernel<decltype(storage)::value><<<grid, block, 0, stream>>>(c, batch, spec.width, spec.height);
    });
    check_launch("gather");
  }
}

}  // namespace reelgrad::cuda
