#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "reelgrad/base/process.h"
#include "reelgrad/clip/encoder.h"
#include "reelgrad/clip/nut.h"
#include "reelgrad/clip/timeline.h"
#include "reelgrad/clip/video_writer.h"

namespace reelgrad {

// An ffmpeg that is fed frames. Its errors name options.output, whatever file it writes. One thread.
class EncoderProcess {
 public:
  // `command`: of encoder.h. The first frame is at `from`, `origin_s` seconds later in the timestamps.
  EncoderProcess(const VideoWriterOptions& options, const EncoderPlan& plan, const std::vector<std::string>& command,
                 Timeline::Position from, std::int64_t origin_s = 0);

  void write(const FrameView& frame, Rational duration);
  Timeline::Position position() const { return timeline_.position(); }
  // Waits for its end. Throws failed with its words when that was none in peace.
  void finish();

 private:
  std::filesystem::path output_;
  Timeline timeline_;
  std::int64_t origin_ticks_;
  std::array<int, 3> plane_order_;
  PipedProcess process_;
  NutWriter nut_;
  std::vector<std::byte> rows_;
};

// Ends an ffmpeg that has been given all of its input.
void finish_ffmpeg(PipedProcess& process, const std::filesystem::path& output);

// PipedProcess::write, whose error names the output.
void write_to_ffmpeg(PipedProcess& process, std::span<const std::byte> bytes, const std::filesystem::path& output);

}  // namespace reelgrad
