#include <algorithm>
#include <utility>

#include "reelgrad/base/error.h"
#include "reelgrad/kernels/cpu/rows.h"
#include "reelgrad/kernels/gather.h"

namespace reelgrad::cpu {
namespace {

const std::byte* row_of(const PictureRef& picture, int plane, int y) {
  return picture.plane[plane] + picture.stride_bytes[plane] * y;
}

// Chroma rows of one plane at luma's horizontal resolution. The vertical filter's four rows are kept: going down a
// picture, each chroma row is read and filtered once.
class ChromaLines {
 public:
  // Lines cover luma samples [x0, x0 + n), multiples of the horizontal factor. `scratch` rows: 4 lines, then 1.
  ChromaLines(const Conversion& c, const PictureRef& picture, int plane, int x0, int n, float* const lines[kUpTaps],
              float* narrow)
      : c_(c), picture_(picture), plane_(plane), first_(x0 >> c.up_x.log2), count_(n >> c.up_x.log2), narrow_(narrow) {
    std::copy(lines, lines + kUpTaps, lines_);
    width_ = picture.width >> c.up_x.log2;
    height_ = picture.height >> c.up_y.log2;
  }

  // Luma row y into out.
  void row(int y, float* out) {
    if (c_.up_y.log2 == 0) return horizontal(y, out);
    const int n = y >> c_.up_y.log2, phase = y & ((1 << c_.up_y.log2) - 1);
    const float* tap[kUpTaps];
    for (int t = 0; t < kUpTaps; ++t) tap[t] = line(mirror(n + c_.up_y.first[phase] + t, height_));
    blend4(c_.up_y.weight[phase], tap[0], tap[1], tap[2], tap[3], count_ << c_.up_x.log2, out);
  }

 private:
  // Four taps lie within four consecutive chroma rows, also where they are mirrored: no two of them share a slot.
  const float* line(int chroma_row) {
    const int slot = chroma_row % kUpTaps;
    if (held_[slot] != chroma_row) {
      horizontal(chroma_row, lines_[slot]);
      held_[slot] = chroma_row;
    }
    return lines_[slot];
  }

  void horizontal(int chroma_row, float* out) {
    const std::byte* row = row_of(picture_, plane_, chroma_row);
    if (c_.up_x.log2 == 0) return load_row(c_.storage, c_.chroma, row, first_, count_, out);
    const int begin = std::max(first_ - 2, 0), end = std::min(first_ + count_ + 2, width_);
    load_row(c_.storage, c_.chroma, row, begin, end - begin, narrow_ + (begin - first_));
    for (int i = -2; i < begin - first_; ++i) narrow_[i] = narrow_[mirror(first_ + i, width_) - first_];
    for (int i = end - first_; i < count_ + 2; ++i) narrow_[i] = narrow_[mirror(first_ + i, width_) - first_];
    upsample_row(c_.up_x, narrow_, count_, out);
  }

  const Conversion& c_;
  const PictureRef& picture_;
  int plane_, first_, count_, width_ = 0, height_ = 0;
  float* lines_[kUpTaps];
  float* narrow_;
  int held_[kUpTaps] = {-1, -1, -1, -1};
};

// Where row `i` of an upright crop goes in the output plane: first sample and step between samples.
struct RowPlace {
  std::ptrdiff_t first, step;
};

RowPlace place_row(const GatherSpec& spec, const Orientation& o, int i) {
  const std::ptrdiff_t w = spec.width, h = spec.height;
  if (!o.transpose) return {(o.flip_y ? h - 1 - i : i) * w + (o.flip_x ? w - 1 : 0), o.flip_x ? -1 : 1};
  return {(o.flip_x ? w - 1 - i : i) + (o.flip_y ? (h - 1) * w : 0), o.flip_y ? -w : w};
}

void copy_to(const float* __restrict row, int n, RowPlace place, float* __restrict plane) {
  float* out = plane + place.first;
  if (place.step == -1) {
    for (int i = 0; i < n; ++i) out[-i] = row[i];
    return;
  }
  for (int i = 0; i < n; ++i) out[i * place.step] = row[i];
}

void check(const GatherSpec& spec, const CropJob& job) {
  const bool inside =
      job.x >= 0 && job.y >= 0 && job.x + spec.width <= job.source.width && job.y + spec.height <= job.source.height;
  if (!inside || (job.orientation.transpose && spec.width != spec.height))
    fail("gather: a crop lies outside its picture, or is transposed without being square");
}

// One crop. The row buffers: per chroma plane 4 lines and 1 row; the three planes' rows; the three output rows.
void gather_rows(const GatherSpec& spec, const Conversion& c, const CropJob& job, int row_begin, int row_end) {
  const int factor = 1 << c.up_x.log2;
  const int x0 = job.x / factor * factor;
  const int n = (job.x + spec.width - x0 + factor - 1) / factor * factor;
  Scratch scratch(2 * (kUpTaps + 1) + 6, n);

  float* lines[2][kUpTaps];
  for (int k = 0; k < 2 * kUpTaps; ++k) lines[k / kUpTaps][k % kUpTaps] = scratch.row(k);
  ChromaLines cb(c, job.source, 1, x0, n, lines[0], scratch.row(8));
  ChromaLines cr(c, job.source, 2, x0, n, lines[1], scratch.row(9));

  const MapRow map = map_row_for(c.clip, c.network);
  const bool upright = !job.orientation.transpose && !job.orientation.flip_x;
  const bool needs_chroma = c.clip == Signal::ycc && c.network != Signal::gray;
  const std::ptrdiff_t plane_floats = static_cast<std::ptrdiff_t>(spec.width) * spec.height;
  const int outputs = planes(c.network);

  for (int i = row_begin; i < row_end; ++i) {
    const int y = job.y + i;
    float* in[3] = {scratch.row(10), scratch.row(11), scratch.row(12)};
    load_row(c.storage, c.luma, row_of(job.source, 0, y), job.x, spec.width, in[0]);
    if (c.clip == Signal::rgb) {
      load_row(c.storage, c.luma, row_of(job.source, 1, y), job.x, spec.width, in[1]);
      load_row(c.storage, c.luma, row_of(job.source, 2, y), job.x, spec.width, in[2]);
    } else if (needs_chroma) {
      cb.row(y, in[1]);
      cr.row(y, in[2]);
      in[1] += job.x - x0;
      in[2] += job.x - x0;
    }

    const RowPlace place = place_row(spec, job.orientation, i);
    float* out[3] = {scratch.row(13), scratch.row(14), scratch.row(15)};
    if (upright)
      for (int k = 0; k < outputs; ++k) out[k] = job.out + k * plane_floats + place.first;
    map(c.matrix, in[0], in[1], in[2], 0, kNetworkChromaBias, spec.width, out[0], out[1], out[2]);
    if (upright) continue;
    for (int k = 0; k < outputs; ++k) copy_to(out[k], spec.width, place, job.out + k * plane_floats);
  }
}

}  // namespace

void gather(const GatherSpec& spec, std::span<const CropJob> jobs) {
  const Conversion c = make_conversion(spec.format, spec.color, spec.to);
  for (const CropJob& job : jobs) {
    check(spec, job);
    gather_rows(spec, c, job, 0, spec.height);
  }
}

void gather_rows(const GatherSpec& spec, const CropJob& job, int row_begin, int row_end) {
  check(spec, job);
  gather_rows(spec, make_conversion(spec.format, spec.color, spec.to), job, row_begin, row_end);
}

}  // namespace reelgrad::cpu
