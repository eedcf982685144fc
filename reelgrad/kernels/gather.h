// Pictures in a clip's own format <-> float tensors: crop, orientation, chroma resampling, matrix, range.
// `cpu` is the reference; `cuda` gives the same values (fp32 within 2^-22 of full scale). No torch here.
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

// Applied in this order to a crop: transpose, then flips.
struct Orientation {
  bool transpose = false, flip_x = false, flip_y = false;
  bool operator==(const Orientation&) const = default;
};

// One crop: pixels [x, x + width) × [y, y + height) of `source` become `out` [C, out_h, out_w], planes `width * height`
// floats apart. The crop is square when `orientation.transpose` is set. Chroma is resampled with the whole picture
// in view: a crop equals the same region of the converted picture.
struct CropJob {
  PictureRef source;
  int x = 0, y = 0;
  Orientation orientation;
  float* out = nullptr;
};

struct GatherSpec {
  VideoFormat format;
  ColorSpec color;
  NetworkColor to = NetworkColor::rgb;
  int width = 0, height = 0;  // of every crop
};

namespace cpu {
void gather(const GatherSpec& spec, std::span<const CropJob> jobs);
// Rows [row_begin, row_end) of one upright crop, for callers that share a large picture among threads.
void gather_rows(const GatherSpec& spec, const CropJob& job, int row_begin, int row_end);
}  // namespace cpu
namespace cuda {
// Asynchronous on `stream`; `jobs` may be freed when it returns. Throws when a launch fails.
void gather(const GatherSpec& spec, std::span<const CropJob> jobs, CUstream_st* stream);
}  // namespace cuda

// The way back: float [C, height, width] in [0, 1] to a picture: matrix, chroma downsampling at its location
// (bicubic, as VapourSynth's resize), range, rounding to nearest, clamping to the code range (floats are not clamped).
// rgb to Gray clips gives Y'; gray writes the luma plane only and leaves chroma planes alone (an RGB clip gets three
// equal planes).
struct ScatterSpec {
  VideoFormat format;
  ColorSpec color;
  NetworkColor from = NetworkColor::rgb;
};

namespace cpu {
void scatter(const ScatterSpec& spec, const float* in, const MutablePictureRef& out);
// Luma rows [row_begin, row_end) and their chroma; both multiples of 1 << subsampling_h (or the picture's height).
void scatter_rows(const ScatterSpec& spec, const float* in, const MutablePictureRef& out, int row_begin, int row_end);
}  // namespace cpu
namespace cuda {
// `workspace`: device memory of scatter_workspace_floats() floats, used until the stream has passed.
void scatter(const ScatterSpec& spec, const float* in, const MutablePictureRef& out, float* workspace,
             CUstream_st* stream);
}  // namespace cuda
std::size_t scatter_workspace_floats(const ScatterSpec& spec, int width, int height);

}  // namespace reelgrad
