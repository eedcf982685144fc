// Pictures of noise, for the tests of this folder.
#pragma once
#include <random>
#include <string>
#include <vector>

#include "reelgrad/clip/frame.h"

namespace reelgrad::test {

// Limited-range noise of 8 bits in a format of any subsampling.
inline std::vector<OwnedPicture> clip_of_noise(const VideoFormat& format, int width, int height, int frames) {
  std::mt19937 random(9);
  std::vector<OwnedPicture> clip;
  for (int n = 0; n < frames; ++n) {
    ColorProps color;
    color.matrix = format.family == ColorFamily::rgb ? 0 : 1;
    color.range = format.family == ColorFamily::rgb ? 1 : 0;
    OwnedPicture picture(format, width, height, color);
    const MutableFrameView view = picture.mutable_view();
    for (int p = 0; p < format.planes(); ++p) {
      for (int y = 0; y < format.plane_height(height, p); ++y) {
        for (int x = 0; x < format.plane_width(width, p); ++x) {
          view.planes[p].data[y * view.planes[p].stride_bytes + x] = static_cast<std::byte>(90 + random() % 70);
        }
      }
    }
    clip.push_back(std::move(picture));
  }
  return clip;
}

inline std::string bytes_of_picture(const OwnedPicture& picture) {
  return {reinterpret_cast<const char*>(picture.view().planes[0].data), picture.size_bytes()};
}

}  // namespace reelgrad::test
