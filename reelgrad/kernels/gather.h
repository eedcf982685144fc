// Pictures in a clip's own format <-> images in tensors: crop, orientation, chroma resampling, matrix, range, element
// type, layout. `cpu` is the reference; `cuda` gives the same values (fp32 within 2^-22 of full scale, fp16 and bf16
// within one ulp, codes at most 1 apart and only where the value is a tie). No torch here.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "reelgrad/clip/video_format.h"
#include "reelgrad/kernels/color.h"

struct CUstream_st;  // cudaStream_t without CUDA's headers

namespace reelgrad {

// Gray clips seen as rgb are three equal planes, as yuv444 their Cb and Cr are neutral. Y' of an RGB clip is BT.709's.

// A whole picture in memory that the kernel can read (host for cpu, device or mapped host for cuda).
struct PictureRef {
  const std::byte* plane[3] = {};
  std::ptrdiff_t stride_bytes[3] = {};
  int width = 0, height = 0;  // luma samples
};

struct MutablePictureRef {
  std::byte* plane[3] = {};
  std::ptrdiff_t stride_bytes[3] = {};
  int width = 0, height = 0;
};

// IEEE 754 binary32, binary16, and bfloat16. Narrowed by rounding to nearest, ties to even.
enum class ElementType { f32, f16, bf16 };

constexpr std::size_t element_bytes(ElementType type) {
  return type == ElementType::f32 ? 4 : 2;
}

// Element (c, y, x) of an image [C, H, W] lies at c * channel + y * row + x * pixel, in elements.
struct ImageStrides {
  std::ptrdiff_t channel = 0, row = 0, pixel = 0;
};

// An image of a contiguous [N, C, H, W].
constexpr ImageStrides planar_strides(int width, int height) {
  return {static_cast<std::ptrdiff_t>(width) * height, width, 1};
}

// An image of a channels_last [N, C, H, W].
constexpr ImageStrides channels_last_strides(int channels, int width) {
  return {1, static_cast<std::ptrdiff_t>(channels) * width, channels};
}

struct ImageRef {
  const void* data = nullptr;
  ImageStrides strides;
};

struct MutableImageRef {
  void* data = nullptr;
  ImageStrides strides;
};

// Applied in this order to a crop: transpose, then flips.
struct Orientation {
  bool transpose = false, flip_x = false, flip_y = false;
  bool operator==(const Orientation&) const = default;
};

// One crop: pixels [x, x + width) × [y, y + height) of `source` become `out` [C, height, width], square when it is
// transposed. Chroma is resampled with the whole picture in view: a crop equals the same region of the converted
// picture. Nothing beyond a row's samples is read, whatever the stride.
struct CropJob {
  PictureRef source;
  int x = 0, y = 0, width = 0, height = 0;
  Orientation orientation;
  MutableImageRef out;
};

// What the crops of one call have in common; their sizes and pictures may differ.
struct GatherSpec {
  VideoFormat format;
  ColorSpec color;
  NetworkColor to = NetworkColor::rgb;
  ChromaFilter filter = ChromaFilter::bicubic;
  ElementType element = ElementType::f32;
  bool operator==(const GatherSpec&) const = default;
};

struct SpecifiedJob {
  GatherSpec spec;
  CropJob job;
};

namespace cpu {
void gather(const GatherSpec& spec, std::span<const CropJob> jobs);
// Rows [row_begin, row_end) of the crop before it is turned, for callers that share a large picture among threads.
void gather_rows(const GatherSpec& spec, const CropJob& job, int row_begin, int row_end);
}  // namespace cpu
namespace cuda {
inline constexpr std::size_t kJobsALaunch = 32;
// Asynchronous on `stream`, one launch for each kJobsALaunch jobs, nothing allocated; `jobs` may be freed when it
// returns. Throws when a launch fails.
void gather(const GatherSpec& spec, std::span<const CropJob> jobs, CUstream_st* stream);

// The same from jobs that lie in memory: a launch that was captured once serves every step, with another table each.
std::size_t gather_table_bytes(std::size_t jobs);
// Writes the jobs to `table` (gather_table_bytes, aligned to 16) in host memory. Returns the blocks of their launch,
// which depend on the crops' sizes alone. Throws as gather() does.
unsigned write_gather_table(std::span<const SpecifiedJob> jobs, std::byte* table);
// Asynchronous on `stream`, one launch, nothing allocated; `table` is on the card (or mapped) and stays as it is until
// the launch is over.
void gather_table(const std::byte* table, std::size_t jobs, unsigned blocks, CUstream_st* stream);
}  // namespace cuda

// How values become codes. nearest: ties to even. ordered: zimg's ordered dither (conversion.h) for integer formats,
// the pattern fixed to the picture; float formats are not dithered.
enum class Rounding { nearest, ordered };

// The way back: an image [C, height, width] in [0, 1] to a picture: matrix, chroma downsampling at its location, range,
// rounding, clamping to the code range (floats are not clamped). rgb to Gray clips gives Y'; gray writes the luma plane
// only and leaves chroma planes alone (an RGB clip gets three equal planes). Bytes between rows are left alone.
struct ScatterSpec {
  VideoFormat format;
  ColorSpec color;
  NetworkColor from = NetworkColor::rgb;
  ChromaFilter filter = ChromaFilter::bicubic;
  ElementType element = ElementType::f32;
  Rounding rounding = Rounding::nearest;
};

inline constexpr int kScatterReach = 12;  // luma rows

namespace cpu {
void scatter(const ScatterSpec& spec, const ImageRef& in, const MutablePictureRef& out);
// Luma rows [row_begin, row_end) and their chroma; both multiples of 1 << subsampling_h (or the picture's height). No
// row of the image is read that is kScatterReach or more away from them.
void scatter_rows(const ScatterSpec& spec, const ImageRef& in, const MutablePictureRef& out, int row_begin,
                  int row_end);
}  // namespace cpu
namespace cuda {
// Asynchronous on `stream`, one launch. Throws when it fails.
void scatter(const ScatterSpec& spec, const ImageRef& in, const MutablePictureRef& out, CUstream_st* stream);
// As cpu::scatter_rows.
void scatter_rows(const ScatterSpec& spec, const ImageRef& in, const MutablePictureRef& out, int row_begin, int row_end,
                  CUstream_st* stream);
}  // namespace cuda

}  // namespace reelgrad
