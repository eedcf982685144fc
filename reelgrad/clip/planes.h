#pragma once
#include <array>
#include <cstring>
#include <vector>

#include "reelgrad/clip/frame.h"

namespace reelgrad {

// The rows of a picture without their padding, planes one after the other in this order.
inline void pack_planes(const FrameView& frame, const std::array<int, 3>& order, std::vector<std::byte>& out) {
  const VideoFormat& format = frame.format;
  std::size_t size = 0;
  for (int plane = 0; plane < format.planes(); ++plane) {
    size += static_cast<std::size_t>(format.plane_width(frame.width, plane)) *
            format.plane_height(frame.height, plane) * format.bytes_per_sample();
  }
  out.resize(size);
  std::byte* to = out.data();
  for (int i = 0; i < format.planes(); ++i) {
    const int plane = format.planes() == 1 ? 0 : order[i];
    const std::size_t row =
        static_cast<std::size_t>(format.plane_width(frame.width, plane)) * format.bytes_per_sample();
    for (int y = 0; y < format.plane_height(frame.height, plane); ++y, to += row) {
      std::memcpy(to, frame.planes[plane].data + y * frame.planes[plane].stride_bytes, row);
    }
  }
}

}  // namespace reelgrad
