#include <algorithm>
#include <array>

#include "reelgrad/kernels/cpu/rows.h"
#include "reelgrad/kernels/gather.h"

namespace reelgrad::cpu {
namespace {

// A spec and what it is about to be applied to.
struct Plan {
  Plan(const ScatterSpec& spec, const ImageRef& in, const MutablePictureRef& to)
      : c(make_conversion(spec.format, spec.color, spec.from)),
        down(make_chroma_down(spec.format, spec.color.chroma_location, spec.filter)),
        element(spec.element),
        rounding(spec.rounding),
        image(in),
        out(to) {}

  // Channel k of a row: in place where it is packed singles, else converted into `spare`.
  const float* row(int k, int y, float* spare) const {
    const auto [channel, row, pixel] = image.strides;
    const std::ptrdiff_t first = k * channel + y * row;
    if (element == ElementType::f32 && pixel == 1) return static_cast<const float*>(image.data) + first;
    load_elements(element, image.data, first, pixel, out.width, spare);
    return spare;
  }

  // Every channel of a row; null for those that the image has not.
  std::array<const float*, 3> rows(int y, float* const spare[3]) const {
    std::array<const float*, 3> rows{};
    for (int k = 0; k < planes(c.network); ++k) rows[k] = row(k, y, spare[k]);
    return rows;
  }

  void store(int plane, int y, const float* values, int n) const {
    const CodeRange& range = c.clip == Signal::ycc && plane > 0 ? c.chroma : c.luma;
    store_row(c.storage, range, rounding, plane, y, values, n, out.plane[plane] + out.stride_bytes[plane] * y);
  }

  Conversion c;
  ChromaDown down;
  ElementType element;
  Rounding rounding;
  ImageRef image;
  MutablePictureRef out;
};

// Cb and Cr of luma rows, filtered to chroma's width. As many rows as the vertical filter has taps are kept, so that
// each is computed once on the way down.
class NarrowRows {
 public:
  explicit NarrowRows(const Plan& plan)
      : plan_(plan),
        width_(plan.out.width >> plan.down.x.log2),
        slots_(plan.down.y.taps),
        scratch_(2 * slots_ + 7 + kMaxPhases, plan.out.width + kMaxDownTaps),
        map_(map_row_for(plan.c.network, Signal::ycc)) {
    std::fill(held_, held_ + kMaxDownTaps, -1);
  }

  int width() const { return width_; }

  // Plane 0: Cb, 1: Cr, of a luma row; valid while rows within the filter's reach are asked for.
  const float* row(int plane, int y) {
    // The taps of one sample are consecutive rows, mirrored within themselves: no two share a slot.
    const int slot = y % slots_;
    if (held_[slot] != y) {
      fill(y, slot);
      held_[slot] = y;
    }
    return scratch_.row(2 * slot + plane);
  }

  float* spare() { return scratch_.row(2 * slots_); }  // for the caller's sum

 private:
  float* luma() { return scratch_.row(2 * slots_ + 1); }
  float* wide(int plane) { return scratch_.row(2 * slots_ + 2 + plane); }
  float* input(int channel) { return scratch_.row(2 * slots_ + 4 + channel); }
  float* phase(int k) { return scratch_.row(2 * slots_ + 7 + k); }

  void fill(int y, int slot) {
    float* const spare[3] = {input(0), input(1), input(2)};
    const auto in = plan_.rows(y, spare);
    map_(plan_.c.matrix, in[0], in[1], in[2], kNetworkChromaBias, 0, plan_.out.width, luma(), wide(0), wide(1));
    for (int plane = 0; plane < 2; ++plane) narrow(wide(plane), scratch_.row(2 * slot + plane));
  }

  void narrow(const float* wide, float* out) {
    const Downsampling& down = plan_.down.x;
    if (down.log2 == 0) {
      std::copy(wide, wide + width_, out);
      return;
    }
    // phase(k)[i] is sample i * factor + k + first: the sum over taps then runs over contiguous samples.
    const int factor = 1 << down.log2, per_phase = width_ + down.taps / factor - 1;
    for (int k = 0; k < factor; ++k) split(wide, k + down.first, factor, per_phase, phase(k));
    set_weighted(down.weight[0], phase(0), width_, out);
    for (int t = 1; t < down.taps; ++t) add_weighted(down.weight[t], phase(t % factor) + t / factor, width_, out);
  }

  void split(const float* __restrict wide, int first, int step, int n, float* __restrict out) const {
    const int width = plan_.out.width;
    const int begin = std::clamp((-first + step - 1) / step, 0, n);
    const int end = std::clamp((width - first + step - 1) / step, begin, n);
    for (int i = 0; i < begin; ++i) out[i] = wide[mirror(first + i * step, width)];
    for (int i = begin; i < end; ++i) out[i] = wide[first + i * step];
    for (int i = end; i < n; ++i) out[i] = wide[mirror(first + i * step, width)];
  }

  const Plan& plan_;
  int width_, slots_;
  Scratch scratch_;
  MapRow map_;
  int held_[kMaxDownTaps];
};

// Planes that need no filter, `to` says which: gray is the first alone.
void scatter_direct(const Plan& plan, Signal to, int begin, int end) {
  const int width = plan.out.width;
  Scratch scratch(6, width);
  float* const spare[3] = {scratch.row(0), scratch.row(1), scratch.row(2)};
  float* const mapped[3] = {scratch.row(3), scratch.row(4), scratch.row(5)};
  const MapRow map = map_row_for(plan.c.network, to);
  for (int y = begin; y < end; ++y) {
    const auto in = plan.rows(y, spare);
    map(plan.c.matrix, in[0], in[1], in[2], kNetworkChromaBias, 0, width, mapped[0], mapped[1], mapped[2]);
    for (int plane = 0; plane < planes(to); ++plane) plan.store(plane, y, mapped[plane], width);
  }
}

void scatter_chroma(const Plan& plan, int begin, int end) {
  NarrowRows rows(plan);
  const Downsampling& down = plan.down.y;
  for (int i = begin; i < end; ++i) {
    for (int plane = 0; plane < 2; ++plane) {
      float* sum = rows.spare();
      const int first = (i << down.log2) + down.first;
      set_weighted(down.weight[0], rows.row(plane, mirror(first, plan.out.height)), rows.width(), sum);
      for (int t = 1; t < down.taps; ++t)
        add_weighted(down.weight[t], rows.row(plane, mirror(first + t, plan.out.height)), rows.width(), sum);
      plan.store(1 + plane, i, sum, rows.width());
    }
  }
}

}  // namespace

void scatter_rows(const ScatterSpec& spec, const ImageRef& in, const MutablePictureRef& out, int row_begin,
                  int row_end) {
  const Plan plan(spec, in, out);
  const bool filters = filters_chroma(plan.c, plan.down);
  const bool luma_only = filters || (plan.c.clip == Signal::ycc && plan.c.network == Signal::gray);
  scatter_direct(plan, luma_only ? Signal::gray : plan.c.clip, row_begin, row_end);
  if (filters) scatter_chroma(plan, row_begin >> plan.down.y.log2, row_end >> plan.down.y.log2);
}

void scatter(const ScatterSpec& spec, const ImageRef& in, const MutablePictureRef& out) {
  scatter_rows(spec, in, out, 0, out.height);
}

}  // namespace reelgrad::cpu
