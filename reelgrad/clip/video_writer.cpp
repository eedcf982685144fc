#include "reelgrad/clip/video_writer.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <vector>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/base/handle.h"
#include "reelgrad/base/log.h"
#include "reelgrad/base/process.h"
#include "reelgrad/clip/audio_copy.h"
#include "reelgrad/clip/encoder.h"
#include "reelgrad/clip/file_name.h"
#include "reelgrad/clip/nut.h"
#include "reelgrad/clip/planes.h"
#include "reelgrad/clip/timeline.h"
#include "reelgrad/clip/y4m.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using File = Handle<std::FILE, std::fclose>;

void check_size(const VideoWriterOptions& options) {
  const VideoFormat& format = options.source_format;
  const int unit_w = 1 << format.subsampling_w, unit_h = 1 << format.subsampling_h;
  if (options.width > 0 && options.height > 0 && options.width % unit_w == 0 && options.height % unit_h == 0) return;
  fail_usage(fmt::format("{}: {} cannot be {}x{}; its width must be a multiple of {} and its height of {}",
                         options.output.string(), format.name(), options.width, options.height, unit_w, unit_h));
}

void check_ffmpeg(const VideoWriterOptions& options) {
  if (find_program(options.ffmpeg).empty()) {
    fail(
        fmt::format("{}: writing video needs ffmpeg, and \"{}\" was not found; install the package ffmpeg, or name the "
                    "program with --ffmpeg",
                    options.output.string(), options.ffmpeg));
  }
  const ProcessResult help = run_process({options.ffmpeg, "-hide_banner", "-h", "encoder=" + options.codec}, 30s);
  if (help.out.find("Encoder " + options.codec) != std::string::npos) return;
  fail(fmt::format("{}: {} has no encoder \"{}\" (`{} -encoders` lists them)", options.output.string(), options.ffmpeg,
                   options.codec, options.ffmpeg));
}

// Where frames go once VideoWriter has checked them.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void write(const FrameView& frame, Rational duration) = 0;
  virtual void finish() = 0;
};

class EncoderSink final : public Sink {
 public:
  EncoderSink(const VideoWriterOptions& options, const std::string& extension)
      : output_(options.output),
        file_(options.output),
        timeline_(options.fps),
        plane_order_(options.source_format.family == ColorFamily::rgb ? std::array{1, 2, 0} : std::array{0, 1, 2}),
        process_(encoder_command(options, extension, timeline_.ticks_per_second(), audio_of(options), file_.path())),
        nut_({options.width, options.height, raw_video_fourcc(written_format(options.source_format)),
              timeline_.ticks_per_second(), options.fps, options.sample_aspect},
             [this](std::span<const std::byte> bytes) { send(bytes); }) {}

  void write(const FrameView& frame, Rational duration) override {
    pack_planes(frame, plane_order_, rows_);
    nut_.write_frame(timeline_.now(), rows_);
    timeline_.advance(duration);
  }

  void finish() override {
    process_.close_input();
    if (const int code = process_.wait(); code != 0) {
      fail(fmt::format("{}: ffmpeg ended with exit code {}: {}", output_.string(), code, process_.error_output()));
    }
    file_.commit();
  }

 private:
  static std::vector<std::string> audio_of(const VideoWriterOptions& options) {
    if (options.audio_from.empty()) return {};
    return audio_codecs(options.ffmpeg, options.audio_from);
  }

  void send(std::span<const std::byte> bytes) {
    try {
      process_.write(bytes);
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("{}: {}", output_.string(), error.what()));
    }
  }

  fs::path output_;
  PendingFile file_;
  Timeline timeline_;
  std::array<int, 3> plane_order_;  // ffmpeg's planar RGB is G, B, R
  PipedProcess process_;
  NutWriter nut_;
  std::vector<std::byte> rows_;
};

class Y4mSink final : public Sink {
 public:
  explicit Y4mSink(const VideoWriterOptions& options) : output_(options.output), fps_(options.fps) {
    std::FILE* file = options.standard_output;
    if (output_ != "-") {
      pending_ = std::make_unique<PendingFile>(output_);
      owned_.reset(std::fopen(pending_->path().c_str(), "wb"));
      if (!owned_) fail(fmt::format("{}: cannot be written: {}", output_.string(), std::strerror(errno)));
      file = owned_.get();
    }
    file_ = file;
    writer_.emplace(Y4mStream{written_format(options.source_format), options.width, options.height, options.fps,
                              options.sample_aspect, options.color},
                    file, output_ == "-" ? "standard output" : output_.string());
  }

  void write(const FrameView& frame, Rational duration) override {
    if (duration.num > 0 && !fits_rate(duration, fps_)) {
      log::warn_once("y4m-vfr",
                     "the frame rate of this clip varies, Y4M holds a single one: timestamps are lost (write "
                     "to .mkv to keep them)");
    }
    writer_->write_frame(frame);
  }

  void finish() override {
    const bool written = owned_ ? std::fclose(owned_.release()) == 0 : std::fflush(file_) == 0;
    if (!written) fail(fmt::format("{}: cannot be written: {}", output_.string(), std::strerror(errno)));
    if (pending_) pending_->commit();
  }

 private:
  fs::path output_;
  Rational fps_;
  std::unique_ptr<PendingFile> pending_;
  File owned_;
  std::FILE* file_ = nullptr;
  std::optional<Y4mWriter> writer_;
};

}  // namespace

struct VideoWriter::Impl {
  VideoWriterOptions options;
  VideoFormat format;
  std::string note;
  std::unique_ptr<Sink> sink;

  explicit Impl(VideoWriterOptions given) : options(std::move(given)), format(written_format(options.source_format)) {
    const std::string extension = lower_extension(options.output);
    check_size(options);
    if (options.output == "-" || extension == ".y4m") {
      note = y4m_note();
      sink = std::make_unique<Y4mSink>(options);
      return;
    }
    if (extension != ".mkv" && extension != ".mp4" && extension != ".mov") {
      fail_usage(
          fmt::format("{}: unknown kind of video \"{}\" (allowed: .mkv, .mp4, .mov, .y4m, or - for Y4M on standard "
                      "output)",
                      options.output.string(), extension));
    }
    raw_video_fourcc(format);  // refuses what ffmpeg could not be told
    check_ffmpeg(options);
    note = encoder_note(extension);
    sink = std::make_unique<EncoderSink>(options, extension);
  }

  std::string depth_note() const {
    const VideoFormat& source = options.source_format;
    return source.bits == format.bits && !source.is_float() ? ""
                                                            : fmt::format(" ({} is written at 10 bits)", source.name());
  }

  std::string y4m_note() const {
    const bool rgb = format.family == ColorFamily::rgb;
    return fmt::format("writing Y4M, {}{}", rgb ? "RGB converted to YUV 4:4:4 (BT.709)" : format.name(), depth_note());
  }

  std::string encoder_note(const std::string& extension) const {
    const std::string encoded = encoded_pixel_format(format, extension, options.width, options.height);
    std::string text = fmt::format("writing {} as {}", encoded, options.codec);
    if (options.codec.starts_with("lib")) text += fmt::format(", crf {}", options.crf);
    if (format.family == ColorFamily::rgb) {
      text += ", RGB converted to YUV (BT.709)";
      if (extension != ".mkv" && encoded.starts_with("yuv444")) text += ", 4:4:4 because the size is odd";
    }
    return text + depth_note();
  }
};

VideoWriter::VideoWriter(VideoWriterOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
VideoWriter::VideoWriter(VideoWriter&&) noexcept = default;
VideoWriter& VideoWriter::operator=(VideoWriter&&) noexcept = default;
VideoWriter::~VideoWriter() = default;

VideoFormat VideoWriter::format() const {
  return impl_->format;
}
std::string VideoWriter::format_note() const {
  return impl_->note;
}

void VideoWriter::write(const FrameView& frame, Rational duration) {
  const VideoWriterOptions& options = impl_->options;
  if (!(frame.format == impl_->format) || frame.width != options.width || frame.height != options.height) {
    fail(fmt::format("{}: a frame of {}x{} {} was to be written into {}x{} {}", options.output.string(), frame.width,
                     frame.height, frame.format.name(), options.width, options.height, impl_->format.name()));
  }
  impl_->sink->write(frame, duration);
}

void VideoWriter::finish() {
  impl_->sink->finish();
}

}  // namespace reelgrad
