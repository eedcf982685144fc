// A writer of the NUT container (specification version 3) for one raw video stream: what is piped to ffmpeg, because
// NUT carries a timestamp with every frame.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "reelgrad/clip/video_format.h"

namespace reelgrad {

struct NutStream {
  int width = 0, height = 0;
  std::string fourcc;  // four bytes
  std::int64_t ticks_per_second = 1;
  Rational fps;            // a hint for the reader; 0/1: none
  Rational sample_aspect;  // 0/1: unknown
};

class NutWriter {
 public:
  using Output = std::function<void(std::span<const std::byte>)>;

  // Writes the headers.
  NutWriter(const NutStream& stream, Output output);

  // `pts` in ticks, rising from frame to frame; `data`: the planes' rows without padding.
  void write_frame(std::int64_t pts, std::span<const std::byte> data);

 private:
  void write(std::span<const std::byte> bytes);

  Output output_;
  std::int64_t position_ = 0;
  std::int64_t last_syncpoint_ = -1;
};

}  // namespace reelgrad
