// Pixel formats as VapourSynth defines them: planar, LSB-aligned integers of 8-16 bits or 16/32-bit floats.
#pragma once
#include <cstdint>
#include <string>

namespace reelgrad {

enum class ColorFamily { gray, rgb, yuv };
enum class SampleType { integer, floating };

struct VideoFormat {
  ColorFamily family = ColorFamily::rgb;
  SampleType sample_type = SampleType::integer;
  int bits = 8;           // 8-16 integer, 16 (half) or 32 floating
  int subsampling_w = 0;  // log2 of luma width / chroma width
  int subsampling_h = 0;

  int planes() const { return family == ColorFamily::gray ? 1 : 3; }
  int bytes_per_sample() const { return bits == 8 ? 1 : bits <= 16 ? 2 : 4; }
  bool is_subsampled() const { return subsampling_w > 0 || subsampling_h > 0; }
  bool is_float() const { return sample_type == SampleType::floating; }
  int plane_width(int width, int plane) const { return plane == 0 ? width : width >> subsampling_w; }
  int plane_height(int height, int plane) const { return plane == 0 ? height : height >> subsampling_h; }
  std::string name() const;  // VapourSynth's: "YUV420P8", "RGBS", "GrayH"
  bool operator==(const VideoFormat&) const = default;
};

// Frame properties that decide what the samples mean; -1: not set. Numbers of ITU-T H.273 (VapourSynth's props).
struct ColorProps {
  int matrix = -1;           // _Matrix; 2: unspecified
  int range = -1;            // _Range: 1 full, 0 limited
  int chroma_location = -1;  // _ChromaLocation: 0 left, 1 centre, 2 top left, 3 top, 4 bottom left, 5 bottom
  int transfer = -1;
  int primaries = -1;
  bool operator==(const ColorProps&) const = default;
};

struct PictureSize {
  int width = 0, height = 0;
  bool operator==(const PictureSize&) const = default;
};
std::string size_text(PictureSize size);  // "1920x1080"

struct Rational {
  std::int64_t num = 0, den = 1;
  bool operator==(const Rational&) const = default;
};

}  // namespace reelgrad
