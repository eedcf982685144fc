#include "reelgrad/clip/y4m.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "reelgrad/base/error.h"
#include "reelgrad/clip/planes.h"

namespace reelgrad {
namespace {

// The chroma tag, empty where there is none. 8-bit 4:2:0 says where its chroma samples lie.
std::string chroma_tag(const VideoFormat& format, int chroma_location) {
  const std::string depth = format.bits == 8 ? "" : "p" + std::to_string(format.bits);
  if (format.family == ColorFamily::gray) return format.bits == 8 ? "mono" : "mono" + std::to_string(format.bits);
  const int w = format.subsampling_w, h = format.subsampling_h;
  if (w == 0 && h == 0) return "444" + depth;
  if (w == 1 && h == 0) return "422" + depth;
  if (w == 2 && h == 0 && format.bits == 8) return "411";
  if (w != 1 || h != 1) return "";
  if (format.bits != 8) return "420" + depth;
  constexpr int kCenter = 1, kTopLeft = 2;
  return chroma_location == kCenter ? "420jpeg" : chroma_location == kTopLeft ? "420paldv" : "420mpeg2";
}

std::string header_line(const Y4mStream& stream) {
  const bool known_rate = stream.fps.num > 0 && stream.fps.den > 0;
  const bool rgb = stream.format.family == ColorFamily::rgb;
  std::string line = fmt::format("YUV4MPEG2 W{} H{} F{}:{} Ip A{}:{} C{}", stream.width, stream.height,
                                 known_rate ? stream.fps.num : 25, known_rate ? stream.fps.den : 1,
                                 stream.sample_aspect.num, stream.sample_aspect.num > 0 ? stream.sample_aspect.den : 0,
                                 chroma_tag(stream.format, stream.color.chroma_location));
  if (rgb || stream.color.range == 0) line += " XCOLORRANGE=LIMITED";
  if (!rgb && stream.color.range == 1) line += " XCOLORRANGE=FULL";
  return line + "\n";
}

template <class Sample>
std::array<const Sample*, 3> row_of(const FrameView& frame, int y) {
  std::array<const Sample*, 3> row{};
  for (int c = 0; c < 3; ++c) {
    row[c] = reinterpret_cast<const Sample*>(frame.planes[c].data + y * frame.planes[c].stride_bytes);
  }
  return row;
}

// Full-range R'G'B' to limited-range Y'CbCr with the coefficients of BT.709 (H.273, MatrixCoefficients 1).
template <class Sample>
void rgb_to_yuv(const FrameView& frame, std::vector<std::byte>& out) {
  constexpr double kRed = 0.2126, kBlue = 0.0722, kGreen = 1 - kRed - kBlue;
  const double step = 1 << (frame.format.bits - 8), peak = (1 << frame.format.bits) - 1;
  const std::size_t samples = static_cast<std::size_t>(frame.width) * frame.height;
  out.resize(3 * samples * sizeof(Sample));
  Sample* y_out = reinterpret_cast<Sample*>(out.data());
  for (int y = 0; y < frame.height; ++y) {
    const auto row = row_of<Sample>(frame, y);
    for (int x = 0; x < frame.width; ++x, ++y_out) {
      const double r = row[0][x] / peak, g = row[1][x] / peak, b = row[2][x] / peak;
      const double luma = kRed * r + kGreen * g + kBlue * b;
      y_out[0] = static_cast<Sample>(std::lround(step * (16 + 219 * luma)));
      y_out[samples] = static_cast<Sample>(std::lround(step * (128 + 224 * (b - luma) / (2 * (1 - kBlue)))));
      y_out[2 * samples] = static_cast<Sample>(std::lround(step * (128 + 224 * (r - luma) / (2 * (1 - kRed)))));
    }
  }
}

}  // namespace

void check_y4m_format(const VideoFormat& format) {
  if (!chroma_tag(format, -1).empty()) return;
  fail_usage(fmt::format("Y4M cannot hold {}; allowed are Gray, RGB and YUV 4:2:0, 4:2:2 and 4:4:4 (4:1:1 at 8 bits)",
                         format.name()));
}

Y4mWriter::Y4mWriter(const Y4mStream& stream, std::FILE* file, std::string name)
    : stream_(stream), file_(file), name_(std::move(name)) {
  check_y4m_format(stream.format);
  const std::string header = header_line(stream);
  write(header.data(), header.size());
}

void Y4mWriter::write_frame(const FrameView& frame) {
  if (stream_.format.family != ColorFamily::rgb) {
    pack_planes(frame, {0, 1, 2}, rows_);
  } else if (frame.format.bits == 8) {
    rgb_to_yuv<std::uint8_t>(frame, rows_);
  } else {
    rgb_to_yuv<std::uint16_t>(frame, rows_);
  }
  write("FRAME\n", 6);
  write(rows_.data(), rows_.size());
}

void Y4mWriter::write(const void* data, std::size_t size) {
  if (std::fwrite(data, 1, size, file_) == size) return;
  fail(fmt::format("writing {} bytes to {}: {}", size, name_, std::strerror(errno)));
}

}  // namespace reelgrad
