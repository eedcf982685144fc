// Video out: an ffmpeg process fed NUT (timestamps survive), or our own Y4M for stdout and .y4m.
#pragma once
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reelgrad/clip/clip.h"
#include "reelgrad/clip/kept_streams.h"

namespace reelgrad {

// Encoding in pieces that outlive a crash (video_segments.h).
struct SegmentOptions {
  std::int64_t frames = 0;  // of each; 0: the video is encoded in one
  // What the frames are made of, name and value: what is already encoded is used only if nothing has changed.
  std::vector<std::pair<std::string, std::string>> made_of;
  bool fresh = false;  // what is already encoded is thrown away
};

struct VideoWriterOptions {
  std::filesystem::path output;  // .mkv, .mp4, .mov, .y4m, or "-" for Y4M on stdout
  int width = 0, height = 0;
  Rational fps;               // nominal; each frame's own duration decides its timestamp
  Rational last_duration;     // of the last frame, in seconds, which ffmpeg is to know from the start; 0/1: 1 / fps
  VideoFormat source_format;  // of the clip that is restored: decides the pixel format
  ColorProps color;           // tags for the file
  Rational sample_aspect;     // shape of a sample; 0/1: not known
  std::string codec = "libx264";
  std::optional<int> crf;    // none: 16, where the encoder has it
  std::string pixel_format;  // that is encoded, as ffmpeg names it; empty: the source's sampling and depth
  std::string ffmpeg = "ffmpeg";
  std::vector<std::string> encoder_arguments;  // for ffmpeg, after all that is decided here
  KeptFrom kept;
  SegmentOptions segments;
  std::FILE* standard_output = stdout;  // where "-" goes
};

// True for what holds Y4M: all of it has one frame rate.
bool is_y4m(const std::filesystem::path& output);

// One consumer thread. Nothing stands under the final name until finish().
class VideoWriter {
 public:
  // Throws usage for an unknown extension or what the encoder does not take, failed when ffmpeg is missing or cannot
  // encode, with its own words: known before the first frame.
  explicit VideoWriter(VideoWriterOptions options);
  VideoWriter(VideoWriter&&) noexcept;
  VideoWriter& operator=(VideoWriter&&) noexcept;
  ~VideoWriter();

  // What write() expects: the source's family at its depth (8-bit sources at 8 bits, deeper or float ones at 10), or at
  // that of options.pixel_format.
  VideoFormat format() const;
  std::vector<std::string> notes() const;  // lines that say what is written and what is taken along

  // Frames that an earlier process has left in finished segments: write() goes on after them. They outlive this object.
  std::int64_t finished_frames() const;

  // `duration` in seconds; 0/1: 1 / fps.
  void write(const FrameView& frame, Rational duration);
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reelgrad
