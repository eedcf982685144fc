#include "reelgrad/kernels/gather.h"

#include <algorithm>
#include <cstring>

#include "reelgrad/kernels/cuda/device.h"

namespace reelgrad::cuda {
namespace {

// A block makes a tile of the output, each thread every kRows-th row of a column of it.
constexpr int kTile = 32, kRows = 8;
constexpr int kReach = 2;  // of the upsampling filter, in chroma samples to either side

// Crops of any sizes in one row of blocks: job i has blocks [first_block[i], first_block[i + 1]).
struct Jobs {
  int count = 0;
  unsigned first_block[kJobsALaunch] = {};
  CropJob job[kJobsALaunch];
};
// Kernel parameters stay below the 4 KiB that every driver takes.
static_assert(sizeof(Jobs) + sizeof(Conversion) + sizeof(ChromaUp) + 32 <= 4096);

__device__ __forceinline__ const std::byte* row_of(const PictureRef& picture, int plane, int y) {
  return picture.plane[plane] + picture.stride_bytes[plane] * y;
}

// Cb and Cr of a column of luma samples, filtered along x: what is the same for every row.
template <Storage storage>
class ChromaColumn {
 public:
  __device__ ChromaColumn(const Upsampling& up, int x, int chroma_width) : filtered_(up.log2 > 0) {
    const int n = x >> up.log2, phase = x & ((1 << up.log2) - 1);
    if (!filtered_) {
      at_[0] = n;
      return;
    }
    for (int t = 0; t < kUpTaps; ++t) {
      at_[t] = mirror(n + up.first[phase] + t, chroma_width);
      weight_[t] = up.weight[phase][t];
    }
  }

  __device__ float value(const CodeRange& range, const std::byte* row) const {
    if (!filtered_) return load_sample<storage>(range, row, at_[0]);
    float tap[kUpTaps];
    for (int t = 0; t < kUpTaps; ++t) tap[t] = load_sample<storage>(range, row, at_[t]);
    return weigh4(weight_, tap[0], tap[1], tap[2], tap[3]);
  }

 private:
  bool filtered_;
  int at_[kUpTaps] = {};
  float weight_[kUpTaps] = {};
};

// Chroma rows [first, first + count) under a tile: of which rows its luma row y is made, see up_y.
struct ChromaRows {
  int first, count;
};

__device__ __forceinline__ ChromaRows rows_under(const Upsampling& up_y, int y, int height) {
  const int first = y >> up_y.log2, last = (y + height - 1) >> up_y.log2, reach = up_y.log2 > 0 ? kReach : 0;
  return {first - reach, last - first + 1 + 2 * reach};
}

// Without a filter along y a tile has kTile chroma rows, with one at most kTile / 2 + 1 + 2 * kReach. The extra column
// keeps threads that read down a column (transposed tiles) on different banks.
using ChromaTile = float2[kTile][kTile + 1];

// Cb and Cr at luma position (x, y); column: x in the tile.
__device__ float2 chroma_at(const Upsampling& up_y, const ChromaTile& tile, const ChromaRows& rows, int column, int y) {
  const int n = (y >> up_y.log2) - rows.first;
  if (up_y.log2 == 0) return tile[n][column];
  const int phase = y & ((1 << up_y.log2) - 1), first = n + up_y.first[phase];
  const float* w = up_y.weight[phase];
  const float2 a = tile[first][column], b = tile[first + 1][column], c = tile[first + 2][column],
               d = tile[first + 3][column];
  return {weigh4(w, a.x, b.x, c.x, d.x), weigh4(w, a.y, b.y, c.y, d.y)};
}

__device__ __forceinline__ int job_of_block(const unsigned* first_block, int count, unsigned block) {
  int low = 0, high = count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (first_block[middle] <= block ? low : high) = middle;
  }
  return low;
}

// Block `tile` of a crop's blocks. Chroma is filtered along x into shared memory, then along y, as cpu/gather.cpp does.
template <Storage storage>
__device__ __forceinline__ void gather_tile(const Conversion& c, const ChromaUp& up, const CropJob& job, unsigned tile,
                                            ElementType element, ChromaTile& chroma) {
  const int thread_x = static_cast<int>(threadIdx.x), thread_y = static_cast<int>(threadIdx.y);
  const PictureRef& source = job.source;
  const unsigned tiles_x = blocks(job.width, kTile);
  const int out_x = static_cast<int>(tile % tiles_x) * kTile, out_y = static_cast<int>(tile / tiles_x) * kTile;
  const int out_width = min(kTile, job.width - out_x), out_height = min(kTile, job.height - out_y);

  // Where the tile lies in the crop before its flips, and before its transposition.
  const auto [transpose, flip_x, flip_y] = job.orientation;
  const int turned_x = flip_x ? job.width - out_x - out_width : out_x;
  const int turned_y = flip_y ? job.height - out_y - out_height : out_y;
  const int x0 = job.x + (transpose ? turned_y : turned_x), y0 = job.y + (transpose ? turned_x : turned_y);
  const int width = transpose ? out_height : out_width, height = transpose ? out_width : out_height;

  const bool has_chroma = c.clip == Signal::ycc && c.network != Signal::gray;
  const ChromaRows rows = rows_under(up.y, y0, height);
  if (has_chroma) {
    if (thread_x < width) {
      const ChromaColumn<storage> column(up.x, x0 + thread_x, source.width >> up.x.log2);
      const int chroma_height = source.height >> up.y.log2;
      for (int row = thread_y; row < rows.count; row += kRows) {
        const int y = mirror(rows.first + row, chroma_height);
        chroma[row][thread_x] = {column.value(c.chroma, row_of(source, 1, y)),
                                 column.value(c.chroma, row_of(source, 2, y))};
      }
    }
    __syncthreads();
  }
  if (thread_x >= out_width) return;

  const ImageStrides& strides = job.out.strides;
  const float bias = c.network == Signal::ycc ? kNetworkChromaBias : 0.0f;
  for (int row = thread_y; row < out_height; row += kRows) {
    const int across = flip_x ? out_width - 1 - thread_x : thread_x, down = flip_y ? out_height - 1 - row : row;
    const int column = transpose ? down : across, x = x0 + column, y = y0 + (transpose ? across : down);
    Triple in{load_sample<storage>(c.luma, row_of(source, 0, y), x), 0, 0};
    if (c.clip == Signal::rgb) {
      in.b = load_sample<storage>(c.luma, row_of(source, 1, y), x);
      in.c = load_sample<storage>(c.luma, row_of(source, 2, y), x);
    } else if (has_chroma) {
      const float2 value = chroma_at(up.y, chroma, rows, column, y);
      in.b = value.x;
      in.c = value.y;
    }
    const Triple out = map_signal(c.matrix, c.clip, c.network, in);
    const std::ptrdiff_t at = (out_y + row) * strides.row + (out_x + thread_x) * strides.pixel;
    store_element(element, job.out.data, at, out.a);
    if (c.network == Signal::gray) continue;
    store_element(element, job.out.data, at + strides.channel, out.b + bias);
    store_element(element, job.out.data, at + 2 * strides.channel, out.c + bias);
  }
}

template <Storage storage>
__global__ void gather_kernel(const __grid_constant__ Conversion c, const __grid_constant__ ChromaUp up,
                              const __grid_constant__ Jobs jobs, ElementType element) {
  __shared__ ChromaTile chroma;
  const int index = job_of_block(jobs.first_block, jobs.count, blockIdx.x);
  gather_tile<storage>(c, up, jobs.job[index], blockIdx.x - jobs.first_block[index], element, chroma);
}

// A crop with all that its conversion needs, as it lies in a table behind the crops' first blocks.
struct TableEntry {
  Conversion conversion;
  ChromaUp up;
  CropJob job;
  ElementType element;
};
static_assert(sizeof(TableEntry) % 8 == 0);

__host__ __device__ constexpr std::size_t entries_offset(std::size_t jobs) {
  return (jobs * sizeof(unsigned) + 15) / 16 * 16;
}

__global__ void gather_table_kernel(const std::byte* table, int jobs) {
  __shared__ ChromaTile chroma;
  __shared__ TableEntry entry;
  const auto* first_block = reinterpret_cast<const unsigned*>(table);
  const int index = job_of_block(first_block, jobs, blockIdx.x);
  const auto* from = reinterpret_cast<const std::uint64_t*>(table + entries_offset(jobs) + index * sizeof(TableEntry));
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  for (unsigned i = thread; i < sizeof(TableEntry) / 8; i += blockDim.x * blockDim.y)
    reinterpret_cast<std::uint64_t*>(&entry)[i] = from[i];
  __syncthreads();
  const unsigned tile = blockIdx.x - first_block[index];
  switch (entry.conversion.storage) {
    case Storage::u8:
      return gather_tile<Storage::u8>(entry.conversion, entry.up, entry.job, tile, entry.element, chroma);
    case Storage::u16:
      return gather_tile<Storage::u16>(entry.conversion, entry.up, entry.job, tile, entry.element, chroma);
    case Storage::half:
      return gather_tile<Storage::half>(entry.conversion, entry.up, entry.job, tile, entry.element, chroma);
    case Storage::single:
      return gather_tile<Storage::single>(entry.conversion, entry.up, entry.job, tile, entry.element, chroma);
  }
}

unsigned blocks_of(const CropJob& job) {
  return blocks(job.width, kTile) * blocks(job.height, kTile);
}

}  // namespace

void gather(const GatherSpec& spec, std::span<const CropJob> jobs, CUstream_st* stream) {
  const Conversion c = make_conversion(spec.format, spec.color, spec.to);
  const ChromaUp up = make_chroma_up(spec.format, spec.color.chroma_location, spec.filter);
  const dim3 block(kTile, kRows);
  for (std::size_t first = 0; first < jobs.size(); first += kJobsALaunch) {
    const auto chunk = jobs.subspan(first, std::min(kJobsALaunch, jobs.size() - first));
    Jobs batch;
    unsigned total = 0;
    for (const CropJob& job : chunk) {
      batch.first_block[batch.count] = total;
      batch.job[batch.count++] = job;
      total += blocks_of(job);
    }
    if (total == 0) continue;
    with_storage(c.storage, [&](auto storage) {
      gather_kernel<decltype(storage)::value><<<total, block, 0, stream>>>(c, up, batch, spec.element);
    });
    check_launch("gather");
  }
}

std::size_t gather_table_bytes(std::size_t jobs) {
  return entries_offset(jobs) + jobs * sizeof(TableEntry);
}

unsigned write_gather_table(std::span<const SpecifiedJob> jobs, std::byte* table) {
  unsigned total = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const auto& [spec, job] = jobs[i];
    const TableEntry entry{make_conversion(spec.format, spec.color, spec.to),
                           make_chroma_up(spec.format, spec.color.chroma_location, spec.filter), job, spec.element};
    std::memcpy(table + i * sizeof total, &total, sizeof total);
    std::memcpy(table + entries_offset(jobs.size()) + i * sizeof entry, &entry, sizeof entry);
    total += blocks_of(job);
  }
  return total;
}

void gather_table(const std::byte* table, std::size_t jobs, unsigned blocks, CUstream_st* stream) {
  if (blocks == 0) return;
  gather_table_kernel<<<blocks, dim3(kTile, kRows), 0, stream>>>(table, static_cast<int>(jobs));
  check_launch("gather_table");
}

}  // namespace reelgrad::cuda
