#include "reelgrad/kernels/conversion.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "reelgrad/base/error.h"

namespace reelgrad {
namespace {

enum class Siting { first, middle, last };  // of a chroma sample among the luma samples it covers

Siting horizontal_siting(int chroma_location) {
  const bool left = chroma_location == 0 || chroma_location == 2 || chroma_location == 4;
  return left ? Siting::first : Siting::middle;
}

Siting vertical_siting(int chroma_location) {
  if (chroma_location == 2 || chroma_location == 3) return Siting::first;
  if (chroma_location == 4 || chroma_location == 5) return Siting::last;
  return Siting::middle;
}

// Centre of chroma sample 0, in luma samples from the picture's edge.
double first_centre(Siting siting, int factor) {
  if (siting == Siting::first) return 0.5;
  return siting == Siting::middle ? factor / 2.0 : factor - 0.5;
}

// Keys' cubic with a = -1/2 (b = 0, c = 1/2 in Mitchell and Netravali's terms).
double catmull_rom(double x) {
  x = std::abs(x);
  if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
  if (x < 2) return ((-0.5 * x + 2.5) * x - 4) * x + 2;
  return 0;
}

double triangle(double x) {
  return std::max(1 - std::abs(x), 0.0);
}

using Kernel = double (*)(double);

Kernel kernel_of(ChromaFilter filter) {
  return filter == ChromaFilter::bicubic ? catmull_rom : triangle;
}

// Taps around `position` (samples from the edge; sample i has its centre at i + 0.5). `stretch` widens the filter.
// Returns the first tap's index.
int fill_taps(Kernel kernel, double position, double stretch, int taps, float* weights) {
  const int first = static_cast<int>(std::floor(position - taps / 2.0 + 0.5));
  double value[kMaxDownTaps], total = 0;
  for (int t = 0; t < taps; ++t) total += value[t] = kernel((first + t + 0.5 - position) / stretch);
  for (int t = 0; t < taps; ++t) weights[t] = static_cast<float>(value[t] / total);
  return first;
}

// Always kUpTaps, of which bilinear's outer ones weigh nothing.
Upsampling make_upsampling(ChromaFilter filter, int log2, Siting siting) {
  Upsampling up{.log2 = log2};
  const int factor = 1 << log2;
  for (int phase = 0; phase < factor; ++phase) {
    const double position = (phase + 0.5 - first_centre(siting, factor)) / factor + 0.5;
    up.first[phase] = fill_taps(kernel_of(filter), position, 1, kUpTaps, up.weight[phase]);
  }
  return up;
}

Downsampling make_downsampling(ChromaFilter filter, int log2, Siting siting) {
  if (log2 == 0) return {};
  const int factor = 1 << log2;
  Downsampling down{.log2 = log2, .taps = (filter == ChromaFilter::bicubic ? 4 : 2) * factor};
  down.first = fill_taps(kernel_of(filter), first_centre(siting, factor), factor, down.taps, down.weight);
  return down;
}

Storage storage_of(const VideoFormat& format) {
  if (format.is_float() && (format.bits == 16 || format.bits == 32))
    return format.bits == 16 ? Storage::half : Storage::single;
  if (!format.is_float() && format.bits >= 8 && format.bits <= 16) return format.bits == 8 ? Storage::u8 : Storage::u16;
  fail("cannot convert samples of " + format.name() + ": " + std::to_string(format.bits) + "-bit " +
       (format.is_float() ? "float" : "integer") + " (allowed: 8-16-bit integer, half, float)");
}

CodeRange make_range(const VideoFormat& format, bool full, bool chroma) {
  if (format.is_float()) return {};
  const double step = 1 << (format.bits - 8);
  const double largest = (1 << format.bits) - 1;
  const double scale = full ? largest : (chroma ? 224 : 219) * step;
  const double offset = chroma ? 128 * step : full ? 0 : 16 * step;
  return {static_cast<float>(offset), static_cast<float>(1 / scale), static_cast<float>(scale),
          static_cast<float>(largest)};
}

Matrix make_matrix(int h273) {
  const auto [kr, kb] = luma_weights(h273);
  const double kg = 1 - kr - kb;
  Matrix m;
  m.kr = static_cast<float>(kr);
  m.kg = static_cast<float>(kg);
  m.kb = static_cast<float>(kb);
  m.to_cb = static_cast<float>(0.5 / (1 - kb));
  m.to_cr = static_cast<float>(0.5 / (1 - kr));
  m.r_from_cr = static_cast<float>(2 * (1 - kr));
  m.b_from_cb = static_cast<float>(2 * (1 - kb));
  m.g_from_cr = static_cast<float>(2 * (1 - kr) * kr / kg);
  m.g_from_cb = static_cast<float>(2 * (1 - kb) * kb / kg);
  return m;
}

Signal signal_of(ColorFamily family) {
  if (family == ColorFamily::gray) return Signal::gray;
  return family == ColorFamily::rgb ? Signal::rgb : Signal::ycc;
}

Signal signal_of(NetworkColor color) {
  if (color == NetworkColor::gray) return Signal::gray;
  return color == NetworkColor::rgb ? Signal::rgb : Signal::ycc;
}

// RGB clips, and gray ones taken from them, carry matrix 0: BT.709 defines their Y'.
int matrix_for(Signal clip, const ColorSpec& color) {
  return clip != Signal::ycc && color.matrix == 0 ? 1 : color.matrix;
}

}  // namespace

Conversion make_conversion(const VideoFormat& format, const ColorSpec& color, NetworkColor network) {
  Conversion c;
  c.storage = storage_of(format);
  c.clip = signal_of(format.family);
  c.network = signal_of(network);
  c.luma = make_range(format, color.full_range, false);
  c.chroma = make_range(format, color.full_range, true);
  // Gray to and from Y'CbCr needs no weights, RGB to and from anything else does.
  if (c.clip != c.network && (c.clip == Signal::rgb || c.network == Signal::rgb))
    c.matrix = make_matrix(matrix_for(c.clip, color));
  return c;
}

ChromaUp make_chroma_up(const VideoFormat& format, int chroma_location, ChromaFilter filter) {
  return {make_upsampling(filter, format.subsampling_w, horizontal_siting(chroma_location)),
          make_upsampling(filter, format.subsampling_h, vertical_siting(chroma_location))};
}

ChromaDown make_chroma_down(const VideoFormat& format, int chroma_location, ChromaFilter filter) {
  return {make_downsampling(filter, format.subsampling_w, horizontal_siting(chroma_location)),
          make_downsampling(filter, format.subsampling_h, vertical_siting(chroma_location))};
}

}  // namespace reelgrad
