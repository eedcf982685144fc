// YUV4MPEG2, for programs that read raw video from a pipe. It knows one frame rate and no timestamps.
#pragma once
#include <cstdio>
#include <string>
#include <vector>

#include "reelgrad/clip/frame.h"
#include "reelgrad/clip/video_format.h"

namespace reelgrad {

struct Y4mStream {
  VideoFormat format;  // 8 or 10 bits; RGB is converted to YUV444 (BT.709, limited range)
  int width = 0, height = 0;
  Rational fps;            // 0/1: written as 25
  Rational sample_aspect;  // 0/1: unknown
  ColorProps color;
};

// Throws usage where Y4M has no name for the format.
void check_y4m_format(const VideoFormat& format);

class Y4mWriter {
 public:
  // Writes the header. `file` stays the caller's; `name` is for messages.
  Y4mWriter(const Y4mStream& stream, std::FILE* file, std::string name);
  void write_frame(const FrameView& frame);

 private:
  void write(const void* data, std::size_t size);

  Y4mStream stream_;
  std::FILE* file_;
  std::string name_;
  std::vector<std::byte> rows_;
};

}  // namespace reelgrad
