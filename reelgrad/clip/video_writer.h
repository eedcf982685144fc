// Video out: an ffmpeg process fed NUT (timestamps survive), or our own Y4M for stdout and .y4m.
#pragma once
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "reelgrad/clip/clip.h"

namespace reelgrad {

struct VideoWriterOptions {
  std::filesystem::path output;  // .mkv, .mp4, .mov, .y4m, or "-" for Y4M on stdout
  int width = 0, height = 0;
  Rational fps;               // nominal; each frame's own duration decides its timestamp
  VideoFormat source_format;  // of the clip that is restored: decides the pixel format
  ColorProps color;           // tags for the file
  Rational sample_aspect;     // shape of a sample; 0/1: not known
  std::string codec = "libx264";
  int crf = 16;
  std::filesystem::path audio_from;  // video file whose audio is copied; empty: none
  double audio_start_s = 0;          // where in that file the first written frame lies
  double audio_duration_s = 0;       // 0: to its end
  std::string ffmpeg = "ffmpeg";
  std::FILE* standard_output = stdout;  // where "-" goes
};

// One consumer thread. Nothing stands under the final name until finish().
class VideoWriter {
 public:
  // Throws usage for an unknown extension, failed when ffmpeg is missing or cannot encode, with its own words.
  explicit VideoWriter(VideoWriterOptions options);
  VideoWriter(VideoWriter&&) noexcept;
  VideoWriter& operator=(VideoWriter&&) noexcept;
  ~VideoWriter();

  // What write() expects: the source's family at its depth (8-bit sources at 8 bits, deeper or float ones at 10).
  VideoFormat format() const;
  std::string format_note() const;  // the one line that says so

  // `duration` in seconds; 0/1: 1 / fps.
  void write(const FrameView& frame, Rational duration);
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reelgrad
