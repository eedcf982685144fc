#include "reelgrad/clip/video_format.h"

#include <fmt/format.h>

namespace reelgrad {
namespace {

std::string subsampling_name(int w, int h) {
  if (w == 0 && h == 0) return "444";
  if (w == 1 && h == 0) return "422";
  if (w == 1 && h == 1) return "420";
  if (w == 2 && h == 0) return "411";
  if (w == 2 && h == 2) return "410";
  if (w == 0 && h == 1) return "440";
  return fmt::format("ss{}{}", w, h);
}

}  // namespace

std::string VideoFormat::name() const {
  const std::string depth = is_float() ? (bits == 16 ? "H" : "S") : std::to_string(bits);
  switch (family) {
    case ColorFamily::gray:
      return "Gray" + depth;
    case ColorFamily::rgb:
      return "RGB" + (is_float() ? depth : std::to_string(3 * bits));
    case ColorFamily::yuv:
      return "YUV" + subsampling_name(subsampling_w, subsampling_h) + "P" + depth;
  }
  return "unknown";
}

std::string size_text(PictureSize size) {
  return fmt::format("{}x{}", size.width, size.height);
}

}  // namespace reelgrad
