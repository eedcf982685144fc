// The arithmetic of picture_summary.h, shared by cpu/ and cuda/.
#pragma once
#include <cstdint>

#include "reelgrad/kernels/conversion.h"

namespace reelgrad {

struct CellRange {
  int begin, end;
};

// Samples of cell `index` of `cells`, of `size` in all.
REELGRAD_HD CellRange cell_range(int index, int cells, int size) {
  const int begin = static_cast<int>(static_cast<std::int64_t>(index) * size / cells);
  const int end = static_cast<int>((static_cast<std::int64_t>(index) + 1) * size / cells);
  return {begin, end > begin ? end : begin + 1};
}

REELGRAD_HD std::uint16_t cell_mean(std::uint64_t sum, std::uint64_t count, int bits) {
  return static_cast<std::uint16_t>((sum << (16 - bits)) / count);
}

// Of a float sample, as a 16-bit code. Clamped as bits, which for floats from 0 up are in the order of the values: a
// loop of it vectorises.
REELGRAD_HD std::uint32_t summary_code(float value) {
  constexpr std::int32_t kOne = 0x3f800000, kFirstNan = 0x7f800001;
  auto bits = static_cast<std::int32_t>(float_bits(value));
  bits = bits < 0 ? 0 : bits;
  bits &= (bits - kFirstNan) >> 31;  // NaN: 0
  bits = bits > kOne ? kOne : bits;
  // At this magnitude a float's unit is 1: the addition rounds, the low bits are the integer.
  const float code = bits_float(static_cast<std::uint32_t>(bits)) * 65535.0f;
  return float_bits(code + 0x1.8p23f) - 0x4b400000u;
}

inline constexpr int kFloatSummaryBits = 16;

inline int summary_bits(const VideoFormat& format) {
  return format.is_float() ? kFloatSummaryBits : format.bits;
}
inline int summary_plane(const VideoFormat& format) {
  return format.family == ColorFamily::rgb ? 1 : 0;
}
inline Storage summary_storage(const VideoFormat& format) {
  if (format.is_float()) return format.bits == 16 ? Storage::half : Storage::single;
  return format.bits == 8 ? Storage::u8 : Storage::u16;
}

}  // namespace reelgrad
