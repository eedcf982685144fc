#include "reelgrad/kernels/cuda/device.h"
#include "reelgrad/kernels/gather.h"

namespace reelgrad::cuda {
namespace {

constexpr int kBlockX = 32, kBlockY = 8;

struct Image {
  const float* in;
  int width, height;
};

__device__ __forceinline__ Triple load_pixel(const Conversion& c, const Image& image, int x, int y) {
  const std::size_t plane = static_cast<std::size_t>(image.width) * image.height;
  const float* pixel = image.in + static_cast<std::size_t>(y) * image.width + x;
  if (c.network == Signal::gray) return {pixel[0], 0, 0};
  const float bias = c.network == Signal::ycc ? kNetworkChromaBias : 0.0f;
  return {pixel[0], pixel[plane] - bias, pixel[2 * plane] - bias};
}

__device__ __forceinline__ std::byte* row_of(const MutablePictureRef& out, int plane, int y) {
  return out.plane[plane] + out.stride_bytes[plane] * y;
}

// One thread a pixel: every plane of full size.
template <Storage storage>
__global__ void full_planes_kernel(const __grid_constant__ Conversion c, Image image,
                                   const __grid_constant__ MutablePictureRef out, int planes) {
  const int x = blockIdx.x * kBlockX + threadIdx.x, y = blockIdx.y * kBlockY + threadIdx.y;
  if (x >= image.width || y >= image.height) return;
  const Triple pixel = map_signal(c.matrix, c.network, c.clip, load_pixel(c, image, x, y));
  store_sample<storage>(c.luma, pixel.a, row_of(out, 0, y), x);
  if (planes == 1) return;
  const CodeRange& range = c.clip == Signal::ycc ? c.chroma : c.luma;
  store_sample<storage>(range, pixel.b, row_of(out, 1, y), x);
  store_sample<storage>(range, pixel.c, row_of(out, 2, y), x);
}

// One thread a chroma column and luma row: Cb and Cr filtered along x into workspace [2, height, chroma width].
__global__ void narrow_kernel(const __grid_constant__ Conversion c, Image image, float* workspace, int chroma_width) {
  const int x = blockIdx.x * kBlockX + threadIdx.x, y = blockIdx.y * kBlockY + threadIdx.y;
  if (x >= chroma_width || y >= image.height) return;
  const int first = (x << c.down_x.log2) + c.down_x.first;
  float cb = 0, cr = 0;
  for (int t = 0; t < c.down_x.taps; ++t) {
    const Triple p = load_pixel(c, image, mirror(first + t, image.width), y);
    const Triple ycc = map_signal(c.matrix, c.network, Signal::ycc, p);
    const float w = c.down_x.weight[t];
    cb = t == 0 ? w * ycc.b : cb + w * ycc.b;
    cr = t == 0 ? w * ycc.c : cr + w * ycc.c;
  }
  float* at = workspace + static_cast<std::size_t>(y) * chroma_width + x;
  at[0] = cb;
  at[static_cast<std::size_t>(image.height) * chroma_width] = cr;
}

// One thread a chroma sample, z the plane: the workspace filtered along y.
template <Storage storage>
__global__ void chroma_kernel(const __grid_constant__ Conversion c, const float* workspace, int height,
                              const __grid_constant__ MutablePictureRef out, int chroma_width, int chroma_height) {
  const int x = blockIdx.x * kBlockX + threadIdx.x, y = blockIdx.y * kBlockY + threadIdx.y, plane = blockIdx.z;
  if (x >= chroma_width || y >= chroma_height) return;
  const float* column = workspace + static_cast<std::size_t>(plane) * height * chroma_width + x;
  const int first = (y << c.down_y.log2) + c.down_y.first;
  float sum = 0;
  for (int t = 0; t < c.down_y.taps; ++t) {
    const float term = c.down_y.weight[t] * column[static_cast<std::size_t>(mirror(first + t, height)) * chroma_width];
    sum = t == 0 ? term : sum + term;
  }
  store_sample<storage>(c.chroma, sum, row_of(out, 1 + plane, y), x);
}

dim3 grid_over(int width, int height, int depth = 1) {
  return {blocks(width, kBlockX), blocks(height, kBlockY), static_cast<unsigned>(depth)};
}

}  // namespace

void scatter(const ScatterSpec& spec, const float* in, const MutablePictureRef& out, float* workspace,
             CUstream_st* stream) {
  const Conversion c = make_conversion(spec.format, spec.color, spec.from);
  const Image image{in, out.width, out.height};
  const dim3 block(kBlockX, kBlockY);
  const bool has_chroma = c.clip == Signal::ycc && c.network != Signal::gray;
  const bool filtered = has_chroma && subsampled(c);
  const int full_planes = filtered || (c.clip == Signal::ycc && !has_chroma) ? 1 : planes(c.clip);
  with_storage(c.storage, [&](auto storage) {
    full_planes_kernel<decltype(storage)::value>
        <<<grid_over(out.width, out.height), block, 0, stream>>>(c, image, out, full_planes);
  });
  check_launch("scatter (full planes)");
  if (!filtered) return;

  const int width = out.width >> c.down_x.log2, height = out.height >> c.down_y.log2;
  narrow_kernel<<<grid_over(width, out.height), block, 0, stream>>>(c, image, workspace, width);
  check_launch("scatter (chroma along x)");
  with_storage(c.storage, [&](auto storage) {
    chroma_kernel<decltype(storage)::value>
        <<<grid_over(width, height, 2), block, 0, stream>>>(c, workspace, out.height, out, width, height);
  });
  check_launch("scatter (chroma along y)");
}

}  // namespace reelgrad::cuda
