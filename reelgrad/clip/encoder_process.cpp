#include "reelgrad/clip/encoder_process.h"

#include <fmt/format.h>

#include "reelgrad/base/error.h"
#include "reelgrad/clip/planes.h"

namespace reelgrad {
namespace {

// ffmpeg's planar RGB is G, B, R.
std::array<int, 3> plane_order(const VideoFormat& format) {
  return format.family == ColorFamily::rgb ? std::array{1, 2, 0} : std::array{0, 1, 2};
}

}  // namespace

EncoderProcess::EncoderProcess(const VideoWriterOptions& options, const EncoderPlan& plan,
                               const std::vector<std::string>& command, Timeline::Position from, std::int64_t origin_s)
    : output_(options.output),
      timeline_(options.fps, from),
      origin_ticks_(origin_s * timeline_.ticks_per_second()),
      plane_order_(plane_order(plan.written)),
      process_(command),
      nut_({options.width, options.height, raw_video_fourcc(plan.written), timeline_.ticks_per_second(), options.fps,
            options.sample_aspect},
           [this](std::span<const std::byte> bytes) { write_to_ffmpeg(process_, bytes, output_); }) {}

void EncoderProcess::write(const FrameView& frame, Rational duration) {
  pack_planes(frame, plane_order_, rows_);
  nut_.write_frame(origin_ticks_ + timeline_.now(), rows_);
  timeline_.advance(duration);
}

void EncoderProcess::finish() {
  finish_ffmpeg(process_, output_);
}

void finish_ffmpeg(PipedProcess& process, const std::filesystem::path& output) {
  process.close_input();
  if (const int code = process.wait(); code != 0) {
    fail(fmt::format("{}: ffmpeg ended with exit code {}: {}", output.string(), code, process.error_output()));
  }
}

void write_to_ffmpeg(PipedProcess& process, std::span<const std::byte> bytes, const std::filesystem::path& output) {
  try {
    process.write(bytes);
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}: {}", output.string(), error.what()));
  }
}

}  // namespace reelgrad
