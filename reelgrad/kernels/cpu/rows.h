// Row kernels of cpu/: plain loops over contiguous samples that the compiler vectorises.
#pragma once
#include <cstddef>
#include <cstdint>

#include "reelgrad/kernels/conversion.h"
#include "reelgrad/kernels/gather.h"

namespace reelgrad::cpu {

template <class Sample, class Convert>
void convert_row(const Sample* __restrict source, int n, float* __restrict out, Convert convert) {
  for (int i = 0; i < n; ++i) out[i] = convert(source[i]);
}

// Samples [first, first + n) of a row as signal values.
inline void load_row(Storage storage, const CodeRange& range, const std::byte* row, int first, int n, float* out) {
  const auto of_code = [range](auto code) { return value_of_code(range, static_cast<float>(code)); };
  switch (storage) {
    case Storage::u8:
      return convert_row(reinterpret_cast<const std::uint8_t*>(row) + first, n, out, of_code);
    case Storage::u16:
      return convert_row(reinterpret_cast<const std::uint16_t*>(row) + first, n, out, of_code);
    case Storage::half:
      return convert_row(reinterpret_cast<const std::uint16_t*>(row) + first, n, out, single_of_half);
    case Storage::single:
      return convert_row(reinterpret_cast<const float*>(row) + first, n, out, [](float value) { return value; });
  }
}

template <class Sample, class Convert>
void store_row_as(const float* __restrict values, int n, Sample* __restrict out, Convert convert) {
  for (int i = 0; i < n; ++i) out[i] = static_cast<Sample>(convert(values[i]));
}

template <class Sample>
void store_dithered_row(const CodeRange& range, int plane, int y, const float* __restrict values, int n,
                        Sample* __restrict out) {
  float dither[kDitherSize];
  for (int i = 0; i < kDitherSize; ++i) dither[i] = ordered_dither(plane, i, y);
  for (int i = 0; i < n; ++i) out[i] = static_cast<Sample>(code_of_value(range, values[i], dither[i % kDitherSize]));
}

// Row y of a plane.
inline void store_row(Storage storage, const CodeRange& range, Rounding rounding, int plane, int y, const float* values,
                      int n, std::byte* row) {
  if (rounding == Rounding::ordered && storage == Storage::u8)
    return store_dithered_row(range, plane, y, values, n, reinterpret_cast<std::uint8_t*>(row));
  if (rounding == Rounding::ordered && storage == Storage::u16)
    return store_dithered_row(range, plane, y, values, n, reinterpret_cast<std::uint16_t*>(row));
  const auto code = [range](float value) { return code_of_value(range, value); };
  switch (storage) {
    case Storage::u8:
      return store_row_as(values, n, reinterpret_cast<std::uint8_t*>(row), code);
    case Storage::u16:
      return store_row_as(values, n, reinterpret_cast<std::uint16_t*>(row), code);
    case Storage::half:
      return store_row_as(values, n, reinterpret_cast<std::uint16_t*>(row), half_of_single);
    case Storage::single:
      return store_row_as(values, n, reinterpret_cast<float*>(row), [](float value) { return value; });
  }
}

template <class Element, class Convert>
void load_elements_as(const Element* __restrict from, std::ptrdiff_t step, int n, float* __restrict out,
                      Convert convert) {
  if (step == 1) return convert_row(from, n, out, convert);
  for (int i = 0; i < n; ++i) out[i] = convert(from[i * step]);
}

// `n` elements of an image from element `first`, `step` apart, as singles.
inline void load_elements(ElementType type, const void* image, std::ptrdiff_t first, std::ptrdiff_t step, int n,
                          float* out) {
  switch (type) {
    case ElementType::f32:
      return load_elements_as(static_cast<const float*>(image) + first, step, n, out,
                              [](float value) { return value; });
    case ElementType::f16:
      return load_elements_as(static_cast<const std::uint16_t*>(image) + first, step, n, out, single_of_half);
    case ElementType::bf16:
      return load_elements_as(static_cast<const std::uint16_t*>(image) + first, step, n, out, single_of_bfloat);
  }
}

template <class Element, class Convert>
void store_elements_as(const float* __restrict values, int n, Element* __restrict to, std::ptrdiff_t step,
                       Convert convert) {
  if (step == 1) return store_row_as(values, n, to, convert);
  for (int i = 0; i < n; ++i) to[i * step] = convert(values[i]);
}

inline void store_elements(ElementType type, const float* values, int n, void* image, std::ptrdiff_t first,
                           std::ptrdiff_t step) {
  switch (type) {
    case ElementType::f32:
      return store_elements_as(values, n, static_cast<float*>(image) + first, step, [](float value) { return value; });
    case ElementType::f16:
      return store_elements_as(values, n, static_cast<std::uint16_t*>(image) + first, step, half_of_single);
    case ElementType::bf16:
      return store_elements_as(values, n, static_cast<std::uint16_t*>(image) + first, step, bfloat_of_single);
  }
}

// Pixels of three rows from one meaning to another; `bias_in` is taken off and `bias_out` added to a side that is ycc.
// Rows that a signal has not are null.
template <Signal from, Signal to>
void map_row(const Matrix& matrix, const float* __restrict a, const float* __restrict b, const float* __restrict c,
             float bias_in, float bias_out, int n, float* __restrict out_a, float* __restrict out_b,
             float* __restrict out_c) {
  for (int i = 0; i < n; ++i) {
    Triple p{a[i], 0, 0};
    if constexpr (from != Signal::gray && !(from == Signal::ycc && to == Signal::gray)) {
      p.b = from == Signal::ycc ? b[i] - bias_in : b[i];
      p.c = from == Signal::ycc ? c[i] - bias_in : c[i];
    }
    const Triple q = map_signal<from, to>(matrix, p);
    out_a[i] = q.a;
    if constexpr (to != Signal::gray) {
      out_b[i] = to == Signal::ycc ? q.b + bias_out : q.b;
      out_c[i] = to == Signal::ycc ? q.c + bias_out : q.c;
    }
  }
}

using MapRow = void (*)(const Matrix&, const float*, const float*, const float*, float, float, int, float*, float*,
                        float*);

template <Signal from>
MapRow map_row_to(Signal to) {
  if (to == Signal::gray) return map_row<from, Signal::gray>;
  return to == Signal::rgb ? map_row<from, Signal::rgb> : map_row<from, Signal::ycc>;
}

inline MapRow map_row_for(Signal from, Signal to) {
  if (from == Signal::gray) return map_row_to<Signal::gray>(to);
  return from == Signal::rgb ? map_row_to<Signal::rgb>(to) : map_row_to<Signal::ycc>(to);
}

// out[i] = w[0] a[i] + … + w[3] d[i].
inline void blend4(const float* w, const float* __restrict a, const float* __restrict b, const float* __restrict c,
                   const float* __restrict d, int n, float* __restrict out) {
  const float w4[4] = {w[0], w[1], w[2], w[3]};
  for (int i = 0; i < n; ++i) out[i] = weigh4(w4, a[i], b[i], c[i], d[i]);
}

// `chroma[i]` for i in [-2, n + 2) is there; writes n << log2 samples.
template <int kLog2>
void upsample_row(const Upsampling& up, const float* __restrict chroma, int n, float* __restrict out) {
  constexpr int kFactor = 1 << kLog2;
  float w[kFactor][kUpTaps];
  const float* from[kFactor];
  for (int p = 0; p < kFactor; ++p) {
    from[p] = chroma + up.first[p];
    for (int t = 0; t < kUpTaps; ++t) w[p][t] = up.weight[p][t];
  }
  for (int i = 0; i < n; ++i)
    for (int p = 0; p < kFactor; ++p)
      out[kFactor * i + p] = weigh4(w[p], from[p][i], from[p][i + 1], from[p][i + 2], from[p][i + 3]);
}

inline void upsample_row(const Upsampling& up, const float* chroma, int n, float* out) {
  if (up.log2 == 1) return upsample_row<1>(up, chroma, n, out);
  return upsample_row<2>(up, chroma, n, out);
}

// out[i] += weight * in[i], the step of a sum over taps.
inline void add_weighted(float weight, const float* __restrict in, int n, float* __restrict out) {
  for (int i = 0; i < n; ++i) out[i] += weight * in[i];
}

inline void set_weighted(float weight, const float* __restrict in, int n, float* __restrict out) {
  for (int i = 0; i < n; ++i) out[i] = weight * in[i];
}

// This thread's scratch memory, cut into rows. One at a time on a thread: the next one takes the same memory.
class Scratch {
 public:
  // Rows of at least `row_floats`, with room for reads of 16 samples beyond either end.
  Scratch(int rows, int row_floats);
  float* row(int index) { return rows_ + static_cast<std::ptrdiff_t>(index) * stride_; }

 private:
  float* rows_;
  std::ptrdiff_t stride_;
};

}  // namespace reelgrad::cpu
