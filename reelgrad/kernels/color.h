// What samples mean, resolved to numbers, and what networks see.
// Formulas: ITU-T H.273 (matrix coefficients, ranges, chroma sample locations).
#pragma once
#include <array>

#include "reelgrad/clip/video_format.h"

namespace reelgrad {

// What a network sees. rgb: R'G'B' in [0, 1]; yuv444: Y' in [0, 1] and Cb, Cr in [0, 1] with 0.5 neutral; gray: Y' in
// [0, 1] (a gray clip's own samples).
enum class NetworkColor { rgb, gray, yuv444 };

constexpr int channels(NetworkColor color) {
  return color == NetworkColor::gray ? 1 : 3;
}

// Fully decided colour description: no "unspecified" left.
struct ColorSpec {
  int matrix = 1;           // H.273; 0 for RGB
  bool full_range = false;  //
  int chroma_location = 0;  // as _ChromaLocation
  bool operator==(const ColorSpec&) const = default;
};

// How chroma is resampled, as VapourSynth's functions of that name do with their defaults, widened on the way down.
// bicubic: Catmull-Rom (b = 0, c = 1/2).
enum class ChromaFilter { bicubic, bilinear };

// Luma weights Kr, Kb of an H.273 matrix; throws usage for one we do not convert (supported: 1, 4, 5, 6, 7, 9).
std::array<double, 2> luma_weights(int matrix);

}  // namespace reelgrad
