#include <algorithm>

#include "reelgrad/base/error.h"
#include "reelgrad/kernels/cpu/rows.h"
#include "reelgrad/kernels/gather.h"

namespace reelgrad::cpu {
namespace {

struct Image {
  const float* plane[3];
  int width, height;
  const float* row(int k, int y) const { return plane[k] + static_cast<std::ptrdiff_t>(y) * width; }
};

std::byte* row_of(const MutablePictureRef& picture, int plane, int y) {
  return picture.plane[plane] + picture.stride_bytes[plane] * y;
}

// Cb and Cr of luma rows, filtered to chroma's width. As many rows as the vertical filter has taps are kept, so that
// each is computed once on the way down.
class NarrowRows {
 public:
  NarrowRows(const Conversion& c, const Image& image)
      : c_(c),
        image_(image),
        width_(image.width >> c.down_x.log2),
        slots_(std::max(c.down_y.taps, 1)),
        scratch_(2 * slots_ + 4 + kMaxPhases, image.width + kMaxDownTaps),
        map_(map_row_for(c.network, Signal::ycc)) {
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
  float* phase(int k) { return scratch_.row(2 * slots_ + 4 + k); }

  void fill(int y, int slot) {
    map_(c_.matrix, image_.row(0, y), image_.row(1, y), image_.row(2, y), kNetworkChromaBias, 0, image_.width, luma(),
         wide(0), wide(1));
    for (int plane = 0; plane < 2; ++plane) narrow(wide(plane), scratch_.row(2 * slot + plane));
  }

  void narrow(const float* wide, float* out) {
    const Downsampling& down = c_.down_x;
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
    const int width = image_.width;
    const int begin = std::clamp((-first + step - 1) / step, 0, n);
    const int end = std::clamp((width - first + step - 1) / step, begin, n);
    for (int i = 0; i < begin; ++i) out[i] = wide[mirror(first + i * step, width)];
    for (int i = begin; i < end; ++i) out[i] = wide[first + i * step];
    for (int i = end; i < n; ++i) out[i] = wide[mirror(first + i * step, width)];
  }

  const Conversion& c_;
  const Image& image_;
  int width_, slots_;
  Scratch scratch_;
  MapRow map_;
  int held_[kMaxDownTaps];
};

void scatter_direct(const Conversion& c, const Image& image, const MutablePictureRef& out, int begin, int end) {
  Scratch scratch(3, image.width);
  const MapRow map = map_row_for(c.network, c.clip);
  for (int y = begin; y < end; ++y) {
    map(c.matrix, image.row(0, y), image.row(1, y), image.row(2, y), kNetworkChromaBias, 0, image.width, scratch.row(0),
        scratch.row(1), scratch.row(2));
    for (int k = 0; k < planes(c.clip); ++k) {
      const CodeRange& range = c.clip == Signal::ycc && k > 0 ? c.chroma : c.luma;
      store_row(c.storage, range, scratch.row(k), image.width, row_of(out, k, y));
    }
  }
}

void scatter_luma(const Conversion& c, const Image& image, const MutablePictureRef& out, int begin, int end) {
  Scratch scratch(1, image.width);
  const MapRow map = map_row_for(c.network, Signal::gray);
  for (int y = begin; y < end; ++y) {
    map(c.matrix, image.row(0, y), image.row(1, y), image.row(2, y), 0, 0, image.width, scratch.row(0), nullptr,
        nullptr);
    store_row(c.storage, c.luma, scratch.row(0), image.width, row_of(out, 0, y));
  }
}

void scatter_chroma(const Conversion& c, const Image& image, const MutablePictureRef& out, int begin, int end) {
  NarrowRows rows(c, image);
  const Downsampling& down = c.down_y;
  for (int i = begin; i < end; ++i) {
    for (int plane = 0; plane < 2; ++plane) {
      float* sum = rows.spare();
      const int first = (i << down.log2) + down.first;
      set_weighted(down.weight[0], rows.row(plane, mirror(first, image.height)), rows.width(), sum);
      for (int t = 1; t < down.taps; ++t)
        add_weighted(down.weight[t], rows.row(plane, mirror(first + t, image.height)), rows.width(), sum);
      store_row(c.storage, c.chroma, sum, rows.width(), row_of(out, 1 + plane, i));
    }
  }
}

}  // namespace

void scatter_rows(const ScatterSpec& spec, const float* in, const MutablePictureRef& out, int row_begin, int row_end) {
  const Conversion c = make_conversion(spec.format, spec.color, spec.from);
  const std::ptrdiff_t plane = c.network == Signal::gray ? 0 : static_cast<std::ptrdiff_t>(out.width) * out.height;
  const Image image{{in, in + plane, in + 2 * plane}, out.width, out.height};
  if (c.clip != Signal::ycc || (!subsampled(c) && c.network != Signal::gray))
    return scatter_direct(c, image, out, row_begin, row_end);
  scatter_luma(c, image, out, row_begin, row_end);
  if (c.network != Signal::gray) scatter_chroma(c, image, out, row_begin >> c.down_y.log2, row_end >> c.down_y.log2);
}

void scatter(const ScatterSpec& spec, const float* in, const MutablePictureRef& out) {
  scatter_rows(spec, in, out, 0, out.height);
}

}  // namespace reelgrad::cpu
