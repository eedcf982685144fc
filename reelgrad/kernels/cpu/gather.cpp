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
  ChromaLines(const Conversion& c, const ChromaUp& up, const PictureRef& picture, int plane, int x0, int n,
              float* const lines[kUpTaps], float* narrow)
      : c_(c),
        up_(up),
        picture_(picture),
        plane_(plane),
        first_(x0 >> up.x.log2),
        count_(n >> up.x.log2),
        narrow_(narrow) {
    std::copy(lines, lines + kUpTaps, lines_);
    width_ = picture.width >> up.x.log2;
    height_ = picture.height >> up.y.log2;
  }

  // Luma row y into out.
  void row(int y, float* out) {
    if (up_.y.log2 == 0) return horizontal(y, out);
    const int n = y >> up_.y.log2, phase = y & ((1 << up_.y.log2) - 1);
    const float* tap[kUpTaps];
    for (int t = 0; t < kUpTaps; ++t) tap[t] = line(mirror(n + up_.y.first[phase] + t, height_));
    blend4(up_.y.weight[phase], tap[0], tap[1], tap[2], tap[3], count_ << up_.x.log2, out);
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
    if (up_.x.log2 == 0) return load_row(c_.storage, c_.chroma, row, first_, count_, out);
    const int begin = std::max(first_ - 2, 0), end = std::min(first_ + count_ + 2, width_);
    load_row(c_.storage, c_.chroma, row, begin, end - begin, narrow_ + (begin - first_));
    for (int i = -2; i < begin - first_; ++i) narrow_[i] = narrow_[mirror(first_ + i, width_) - first_];
    for (int i = end - first_; i < count_ + 2; ++i) narrow_[i] = narrow_[mirror(first_ + i, width_) - first_];
    upsample_row(up_.x, narrow_, count_, out);
  }

  const Conversion& c_;
  const ChromaUp& up_;
  const PictureRef& picture_;
  int plane_, first_, count_, width_ = 0, height_ = 0;
  float* lines_[kUpTaps];
  float* narrow_;
  int held_[kUpTaps] = {-1, -1, -1, -1};
};

// Where row `i` of an upright crop goes in a channel: first element and step between elements.
struct RowPlace {
  std::ptrdiff_t first, step;
};

RowPlace place_row(const CropJob& job, int i) {
  const Orientation& o = job.orientation;
  const std::ptrdiff_t last_x = job.width - 1, last_y = job.height - 1;
  const auto [_, row, pixel] = job.out.strides;
  if (!o.transpose)
    return {(o.flip_y ? last_y - i : i) * row + (o.flip_x ? last_x * pixel : 0), o.flip_x ? -pixel : pixel};
  return {(o.flip_x ? last_x - i : i) * pixel + (o.flip_y ? last_y * row : 0), o.flip_y ? -row : row};
}

void check(const CropJob& job) {
  const bool inside = job.x >= 0 && job.y >= 0 && job.width >= 0 && job.height >= 0 &&
                      job.x + job.width <= job.source.width && job.y + job.height <= job.source.height;
  if (!inside || (job.orientation.transpose && job.width != job.height))
    fail("gather: a crop lies outside its picture, or is transposed without being square");
}

// A spec as numbers.
struct Plan {
  explicit Plan(const GatherSpec& spec)
      : c(make_conversion(spec.format, spec.color, spec.to)),
        up(make_chroma_up(spec.format, spec.color.chroma_location, spec.filter)),
        element(spec.element) {}
  Conversion c;
  ChromaUp up;
  ElementType element;
};

// One crop. The row buffers: per chroma plane 4 lines and 1 row; the three planes' rows; the three output rows.
void gather_rows(const Plan& plan, const CropJob& job, int row_begin, int row_end) {
  const Conversion& c = plan.c;
  const int factor = 1 << plan.up.x.log2;
  const int x0 = job.x / factor * factor;
  const int n = (job.x + job.width - x0 + factor - 1) / factor * factor;
  Scratch scratch(2 * (kUpTaps + 1) + 6, n);

  float* lines[2][kUpTaps];
  for (int k = 0; k < 2 * kUpTaps; ++k) lines[k / kUpTaps][k % kUpTaps] = scratch.row(k);
  ChromaLines cb(c, plan.up, job.source, 1, x0, n, lines[0], scratch.row(8));
  ChromaLines cr(c, plan.up, job.source, 2, x0, n, lines[1], scratch.row(9));

  const MapRow map = map_row_for(c.clip, c.network);
  const bool needs_chroma = c.clip == Signal::ycc && c.network != Signal::gray;
  const int outputs = planes(c.network);

  for (int i = row_begin; i < row_end; ++i) {
    const int y = job.y + i;
    float* in[3] = {scratch.row(10), scratch.row(11), scratch.row(12)};
    load_row(c.storage, c.luma, row_of(job.source, 0, y), job.x, job.width, in[0]);
    if (c.clip == Signal::rgb) {
      load_row(c.storage, c.luma, row_of(job.source, 1, y), job.x, job.width, in[1]);
      load_row(c.storage, c.luma, row_of(job.source, 2, y), job.x, job.width, in[2]);
    } else if (needs_chroma) {
      cb.row(y, in[1]);
      cr.row(y, in[2]);
      in[1] += job.x - x0;
      in[2] += job.x - x0;
    }

    const RowPlace place = place_row(job, i);
    const bool in_place = plan.element == ElementType::f32 && place.step == 1;
    float* out[3] = {scratch.row(13), scratch.row(14), scratch.row(15)};
    if (in_place)
      for (int k = 0; k < outputs; ++k)
        out[k] = static_cast<float*>(job.out.data) + k * job.out.strides.channel + place.first;
    map(c.matrix, in[0], in[1], in[2], 0, kNetworkChromaBias, job.width, out[0], out[1], out[2]);
    if (in_place) continue;
    for (int k = 0; k < outputs; ++k)
      store_elements(plan.element, out[k], job.width, job.out.data, k * job.out.strides.channel + place.first,
                     place.step);
  }
}

}  // namespace

void gather(const GatherSpec& spec, std::span<const CropJob> jobs) {
  const Plan plan(spec);
  for (const CropJob& job : jobs) {
    check(job);
    gather_rows(plan, job, 0, job.height);
  }
}

void gather_rows(const GatherSpec& spec, const CropJob& job, int row_begin, int row_end) {
  check(job);
  gather_rows(Plan(spec), job, row_begin, row_end);
}

}  // namespace reelgrad::cpu
