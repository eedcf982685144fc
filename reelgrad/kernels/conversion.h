// The arithmetic of gather and scatter, per sample, shared by cpu/ and cuda/ so that both round alike. Both are
// compiled without contraction into fused multiply-adds; every sum is written in the order in which it must be taken.
#pragma once
#include <cstdint>

#include "reelgrad/clip/video_format.h"
#include "reelgrad/kernels/color.h"
#include "reelgrad/kernels/host_device.h"

namespace reelgrad {

enum class Storage { u8, u16, half, single };

// Codes of one plane against signal values: value = (code - offset) * to_value, code = value * to_code + offset.
struct CodeRange {
  float offset = 0, to_value = 1, to_code = 1;
  float largest = 0;  // code; integer storage only
};

// What three planes hold. ycc: Y' in [0, 1], Cb and Cr in [-0.5, 0.5].
enum class Signal { gray, rgb, ycc };

// Y' = kr R' + kg G' + kb B', Cb = (B' - Y') * to_cb, Cr = (R' - Y') * to_cr, and their inverse.
struct Matrix {
  float kr = 0, kg = 0, kb = 0, to_cb = 0, to_cr = 0;
  float r_from_cr = 0, g_from_cb = 0, g_from_cr = 0, b_from_cb = 0;
};

inline constexpr int kUpTaps = 4, kMaxPhases = 4, kMaxDownTaps = 16;

// Upsampling of chroma by 2^log2 on one axis: luma sample n * 2^log2 + p is the sum over t of
// weight[p][t] * chroma[mirror(n + first[p] + t)].
struct Upsampling {
  int log2 = 0;
  int first[kMaxPhases] = {};
  float weight[kMaxPhases][kUpTaps] = {};
};

// Downsampling by 2^log2: chroma sample i is the sum over t < taps of weight[t] * full[mirror(i * 2^log2 + first + t)].
struct Downsampling {
  int log2 = 0;
  int first = 0, taps = 1;
  float weight[kMaxDownTaps] = {1};
};

struct ChromaUp {
  Upsampling x, y;
};

struct ChromaDown {
  Downsampling x, y;
};

// Everything about a format and colour description, chroma resampling apart, as numbers.
struct Conversion {
  Storage storage = Storage::u8;
  CodeRange luma, chroma;  // `luma` for RGB's planes as well
  Signal clip = Signal::rgb, network = Signal::rgb;
  Matrix matrix;
};

// Throws usage for a matrix that the conversion needs and we lack, failed for samples that we do not read, naming the
// format.
Conversion make_conversion(const VideoFormat& format, const ColorSpec& color, NetworkColor network);

// The weights are zimg's (`compute_filter` in its resize/filter.cpp): the kernel at each tap's distance, normalised to
// the sum 1, the taps mirrored at the picture's border.
ChromaUp make_chroma_up(const VideoFormat& format, int chroma_location, ChromaFilter filter);
ChromaDown make_chroma_down(const VideoFormat& format, int chroma_location, ChromaFilter filter);

// Chroma planes that the network's three planes must be filtered for.
constexpr bool filters_chroma(const Conversion& c, const ChromaDown& down) {
  return c.clip == Signal::ycc && c.network != Signal::gray && (down.x.log2 > 0 || down.y.log2 > 0);
}
constexpr int planes(Signal signal) {
  return signal == Signal::gray ? 1 : 3;
}

// The network's Cb and Cr are in [0, 1].
inline constexpr float kNetworkChromaBias = 0.5f;

struct Triple {
  float a, b, c;
};

REELGRAD_HD Triple rgb_of_ycc(const Matrix& m, Triple p) {
  return {p.a + m.r_from_cr * p.c, (p.a - m.g_from_cb * p.b) - m.g_from_cr * p.c, p.a + m.b_from_cb * p.b};
}

REELGRAD_HD float luma_of_rgb(const Matrix& m, Triple p) {
  return (m.kr * p.a + m.kg * p.b) + m.kb * p.c;
}

REELGRAD_HD Triple ycc_of_rgb(const Matrix& m, Triple p) {
  const float y = luma_of_rgb(m, p);
  return {y, (p.c - y) * m.to_cb, (p.a - y) * m.to_cr};
}

// From one meaning to another; a gray signal is in `a` alone.
template <Signal from, Signal to>
REELGRAD_HD Triple map_signal(const Matrix& m, Triple p) {
  if constexpr (from == to || to == Signal::gray) {
    if constexpr (from == Signal::rgb && to == Signal::gray) return {luma_of_rgb(m, p), 0, 0};
    return p;
  } else if constexpr (from == Signal::gray) {
    if constexpr (to == Signal::rgb) return {p.a, p.a, p.a};
    return {p.a, 0, 0};
  } else if constexpr (to == Signal::rgb) {
    return rgb_of_ycc(m, p);
  } else {
    return ycc_of_rgb(m, p);
  }
}

// Index of a sample outside [0, size) by reflection at the border, whose sample is repeated.
REELGRAD_HD int mirror(int index, int size) {
  if (index < 0) index = -1 - index;
  if (index >= size) index = 2 * size - 1 - index;
  if (index < 0) index = 0;
  return index < size ? index : size - 1;
}

REELGRAD_HD float weigh4(const float* w, float a, float b, float c, float d) {
  return ((w[0] * a + w[1] * b) + w[2] * c) + w[3] * d;
}

REELGRAD_HD std::uint32_t float_bits(float value) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return bits;
}

REELGRAD_HD float bits_float(std::uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

// IEEE 754 binary16, without branches so that loops of it vectorise.
REELGRAD_HD float single_of_half(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t magnitude = static_cast<std::uint32_t>(half & 0x7fffu) << 13;
  // Scaling by 2^112 moves the exponent's bias and normalises denormals; infinity and NaN need their exponent back.
  const float scaled = bits_float(magnitude) * 0x1p112f;
  const std::uint32_t special = magnitude >= (0x7c00u << 13) ? 0x7f800000u : 0u;
  return bits_float(sign | float_bits(scaled) | special);
}

// Rounds to nearest, ties to even.
REELGRAD_HD std::uint16_t half_of_single(float value) {
  const std::uint32_t bits = float_bits(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  // Adding 0.5 leaves a half denormal's bits, rounded, at the bottom of the mantissa.
  const std::uint32_t denormal = float_bits(bits_float(magnitude) + 0.5f) - 0x3f000000u;
  const std::uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const std::uint32_t large = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  const std::uint32_t small_or_normal = magnitude < 0x38800000u ? denormal : normal;
  return static_cast<std::uint16_t>(sign | (magnitude >= 0x477ff000u ? large : small_or_normal));
}

// bfloat16: the upper half of a single.
REELGRAD_HD float single_of_bfloat(std::uint16_t bfloat) {
  return bits_float(static_cast<std::uint32_t>(bfloat) << 16);
}

// Rounds to nearest, ties to even.
REELGRAD_HD std::uint16_t bfloat_of_single(float value) {
  const std::uint32_t bits = float_bits(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return static_cast<std::uint16_t>(nan ? (bits >> 16) | 0x40u : rounded);
}

REELGRAD_HD float value_of_code(const CodeRange& range, float code) {
  return (code - range.offset) * range.to_value;
}

// What ordered dither adds to the code of sample (x, y) of a plane before rounding, in (-1/2, 1/2): zimg's, with which
// VapourSynth's dither_type="ordered" is done. Level L of Bayer's 16x16 matrix gives (L + 1) / 257 - 1/2; plane 1 reads
// the matrix from right to left, plane 2 from bottom to top (`BayerDitherTable` in zimg's depth/dither.cpp).
inline constexpr int kDitherSize = 16;

REELGRAD_HD float ordered_dither(int plane, int x, int y) {
  const int column = plane == 1 ? kDitherSize - 1 - x % kDitherSize : x % kDitherSize;
  const int row = plane == 2 ? kDitherSize - 1 - y % kDitherSize : y % kDitherSize;
  int level = 0;
  for (int bit = 0; bit < 4; ++bit) {
    const int right = (column >> bit) & 1, low = (row >> bit) & 1;
    level = 4 * level + 2 * (right ^ low) + right;
  }
  return static_cast<float>(level + 1) / 257.0f - 0.5f;
}

// Nearest code to the value's plus `dither`, ties to even, in [0, range.largest]; NaN gives 0.
REELGRAD_HD int code_of_value(const CodeRange& range, float value, float dither = 0) {
  float code = (value * range.to_code + range.offset) + dither;
  code = code > 0.0f ? code : 0.0f;
  code = code < range.largest ? code : range.largest;
  // At this magnitude a float's unit is 1: the addition rounds, the low bits are the integer.
  return static_cast<int>(float_bits(code + 0x1.8p23f) - 0x4b400000u);
}

}  // namespace reelgrad
