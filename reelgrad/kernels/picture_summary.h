// What is asked of neighbouring pictures of a clip: whether one repeats the other, and a small integer picture of each
// in which scene cuts show. Integers all the way: `cpu` and `cuda` give the same numbers. No torch here.
#pragma once
#include <cstdint>

#include "reelgrad/kernels/gather.h"

namespace reelgrad {

inline constexpr int kSummaryColumns = 64, kSummaryRows = 36;

// Means of luma (Y', gray, or the G plane of an RGB clip) over the cells of a fixed grid, row by row.
//
// Column i of the grid is samples [i w / 64, max(i w / 64 + 1, (i + 1) w / 64)) of a picture w samples wide, rows
// likewise: a picture smaller than the grid shows its samples more than once. A cell is sum * 2^(16 - bits) / count,
// rounded down. Samples of float clips are first clamped to [0, 1] (NaN: 0) and rounded to 16 bits, ties to even.
struct PictureSummary {
  std::uint16_t cell[kSummaryRows * kSummaryColumns] = {};
  bool operator==(const PictureSummary&) const = default;
};

namespace cpu {
PictureSummary summarize(const VideoFormat& format, const PictureRef& picture);
// Every sample of every plane has the same bits. Both pictures are of this format and of one size.
bool same_picture(const VideoFormat& format, const PictureRef& a, const PictureRef& b);
}  // namespace cpu
namespace cuda {
// Asynchronous on `stream`, as is the next; `out` is memory that the card can write (its own, or page-locked).
void summarize(const VideoFormat& format, const PictureRef& picture, PictureSummary* out, CUstream_st* stream);
// *differs = same_picture ? 0 : 1.
void compare(const VideoFormat& format, const PictureRef& a, const PictureRef& b, std::uint32_t* differs,
             CUstream_st* stream);
}  // namespace cuda

}  // namespace reelgrad
