#include "reelgrad/kernels/picture_summary.h"

#include "reelgrad/kernels/cuda/device.h"
#include "reelgrad/kernels/summary_cells.h"

namespace reelgrad::cuda {
namespace {

constexpr int kCellThreads = 128, kWarp = 32;

template <Storage storage>
__device__ std::uint32_t load_code(const std::byte* row, int x) {
  if constexpr (storage == Storage::u8) return reinterpret_cast<const std::uint8_t*>(row)[x];
  if constexpr (storage == Storage::u16) return reinterpret_cast<const std::uint16_t*>(row)[x];
  if constexpr (storage == Storage::half)
    return summary_code(single_of_half(reinterpret_cast<const std::uint16_t*>(row)[x]));
  return summary_code(reinterpret_cast<const float*>(row)[x]);
}

// The sum of `value` over the block, in its first thread.
__device__ unsigned long long block_sum(unsigned long long value) {
  __shared__ unsigned long long warps[kCellThreads / kWarp];
  for (int step = kWarp / 2; step > 0; step /= 2) value += __shfl_down_sync(0xffffffffu, value, step);
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  unsigned long long sum = 0;
  for (const unsigned long long warp : warps) sum += warp;
  return sum;
}

// One block a cell.
template <Storage storage>
__global__ void summarize_kernel(const std::byte* plane, std::ptrdiff_t stride, int width, int height, int bits,
                                 PictureSummary* out) {
  const CellRange columns = cell_range(blockIdx.x, kSummaryColumns, width);
  const CellRange rows = cell_range(blockIdx.y, kSummaryRows, height);
  const int across = columns.end - columns.begin, count = across * (rows.end - rows.begin);
  unsigned long long sum = 0;
  for (int i = threadIdx.x; i < count; i += kCellThreads)
    sum += load_code<storage>(plane + stride * (rows.begin + i / across), columns.begin + i % across);
  sum = block_sum(sum);
  if (threadIdx.x == 0) out->cell[blockIdx.y * kSummaryColumns + blockIdx.x] = cell_mean(sum, count, bits);
}

constexpr int kCompareThreads = 256;
constexpr unsigned kMostBlocks = 1024;

struct PlanePair {
  const std::byte *a, *b;
  std::ptrdiff_t stride_a, stride_b;
  int row_bytes, rows;
};

struct PlanePairs {
  PlanePair plane[3];
  int planes;
};

// Whether this thread's part of the row differs; in units of 16 bytes where the row's addresses allow.
__device__ bool row_differs(const std::byte* a, const std::byte* b, int bytes) {
  bool differs = false;
  int from = 0;
  if ((reinterpret_cast<std::uintptr_t>(a) | reinterpret_cast<std::uintptr_t>(b)) % sizeof(uint4) == 0) {
    const int units = bytes / static_cast<int>(sizeof(uint4));
    for (int i = threadIdx.x; i < units; i += kCompareThreads) {
      const uint4 p = reinterpret_cast<const uint4*>(a)[i], q = reinterpret_cast<const uint4*>(b)[i];
      differs |= p.x != q.x || p.y != q.y || p.z != q.z || p.w != q.w;
    }
    from = units * static_cast<int>(sizeof(uint4));
  }
  for (int i = from + threadIdx.x; i < bytes; i += kCompareThreads) differs |= a[i] != b[i];
  return differs;
}

__global__ void clear_kernel(std::uint32_t* differs) {
  *differs = 0;
}

// Blocks take rows in turns; whoever finds a difference writes the same 1.
__global__ void compare_kernel(const __grid_constant__ PlanePairs pairs, std::uint32_t* differs) {
  bool found = false;
  for (int p = 0; p < pairs.planes; ++p) {
    const PlanePair& pair = pairs.plane[p];
    for (int y = blockIdx.x; y < pair.rows; y += gridDim.x)
      found |= row_differs(pair.a + pair.stride_a * y, pair.b + pair.stride_b * y, pair.row_bytes);
  }
  if (__syncthreads_or(found) && threadIdx.x == 0) *differs = 1;
}

}  // namespace

void summarize(const VideoFormat& format, const PictureRef& picture, PictureSummary* out, CUstream_st* stream) {
  const int plane = summary_plane(format);
  with_storage(summary_storage(format), [&](auto storage) {
    summarize_kernel<decltype(storage)::value><<<dim3(kSummaryColumns, kSummaryRows), kCellThreads, 0, stream>>>(
        picture.plane[plane], picture.stride_bytes[plane], picture.width, picture.height, summary_bits(format), out);
  });
  check_launch("summarize");
}

void compare(const VideoFormat& format, const PictureRef& a, const PictureRef& b, std::uint32_t* differs,
             CUstream_st* stream) {
  PlanePairs pairs{.planes = format.planes()};
  for (int p = 0; p < pairs.planes; ++p) {
    pairs.plane[p] = {a.plane[p],
                      b.plane[p],
                      a.stride_bytes[p],
                      b.stride_bytes[p],
                      format.plane_width(a.width, p) * format.bytes_per_sample(),
                      format.plane_height(a.height, p)};
  }
  clear_kernel<<<1, 1, 0, stream>>>(differs);
  check_launch("compare");
  const unsigned rows = static_cast<unsigned>(a.height), blocks = rows < kMostBlocks ? rows : kMostBlocks;
  compare_kernel<<<blocks, kCompareThreads, 0, stream>>>(pairs, differs);
  check_launch("compare");
}

}  // namespace reelgrad::cuda
