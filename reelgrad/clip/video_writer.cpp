#include "reelgrad/clip/video_writer.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <vector>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/base/handle.h"
#include "reelgrad/base/log.h"
#include "reelgrad/clip/encoder.h"
#include "reelgrad/clip/encoder_process.h"
#include "reelgrad/clip/file_name.h"
#include "reelgrad/clip/timeline.h"
#include "reelgrad/clip/video_segments.h"
#include "reelgrad/clip/y4m.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;
using File = Handle<std::FILE, std::fclose>;

void check_size(const VideoWriterOptions& options) {
  const VideoFormat& format = options.source_format;
  const int unit_w = 1 << format.subsampling_w, unit_h = 1 << format.subsampling_h;
  if (options.width > 0 && options.height > 0 && options.width % unit_w == 0 && options.height % unit_h == 0) return;
  fail_usage(fmt::format("{}: {} cannot be {}x{}; its width must be a multiple of {} and its height of {}",
                         options.output.string(), format.name(), options.width, options.height, unit_w, unit_h));
}

// Where frames go once VideoWriter has checked them.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void write(const FrameView& frame, Rational duration) = 0;
  virtual void finish() = 0;
  virtual std::int64_t finished_frames() const { return 0; }
};

class EncoderSink final : public Sink {
 public:
  EncoderSink(const VideoWriterOptions& options, const EncoderPlan& plan)
      : file_(options.output),
        process_(options, plan, encoder_command(options, plan, Timeline(options.fps).ticks_per_second(), file_.path()),
                 {}) {}

  void write(const FrameView& frame, Rational duration) override { process_.write(frame, duration); }

  void finish() override {
    process_.finish();
    file_.commit();
  }

 private:
  PendingFile file_;
  EncoderProcess process_;
};

class SegmentSink final : public Sink {
 public:
  SegmentSink(const VideoWriterOptions& options, const EncoderPlan& plan) : segments_(options, plan) {}

  void write(const FrameView& frame, Rational duration) override { segments_.write(frame, duration); }
  void finish() override { segments_.finish(); }
  std::int64_t finished_frames() const override { return segments_.finished_frames(); }

 private:
  VideoSegments segments_;
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

// What Y4M has no place for.
void refuse_encoding_options(const VideoWriterOptions& options) {
  const char* option = options.segments.frames > 0          ? "--segments"
                       : !options.pixel_format.empty()      ? "--pix-fmt"
                       : !options.encoder_arguments.empty() ? "--ffmpeg"
                                                            : nullptr;
  if (option) {
    fail_usage(fmt::format("{}: is for encoded video (.mkv, .mp4, .mov), and {} is Y4M", option,
                           options.output == "-" ? "standard output" : options.output.string()));
  }
}

}  // namespace

struct VideoWriter::Impl {
  VideoWriterOptions options;
  VideoFormat format;
  std::vector<std::string> notes;
  std::unique_ptr<Sink> sink;

  explicit Impl(VideoWriterOptions given)
      : options(std::move(given)), format(written_format(options.source_format, options.pixel_format)) {
    const std::string extension = lower_extension(options.output);
    check_size(options);
    if (is_y4m(options.output)) {
      refuse_encoding_options(options);
      notes.push_back(y4m_note());
      sink = std::make_unique<Y4mSink>(options);
      return;
    }
    if (extension != ".mkv" && extension != ".mp4" && extension != ".mov") {
      fail_usage(
          fmt::format("{}: unknown kind of video \"{}\" (allowed: .mkv, .mp4, .mov, .y4m, or - for Y4M on standard "
                      "output)",
                      options.output.string(), extension));
    }
    const EncoderPlan plan = plan_encoder(options);
    notes = plan.kept.notes;
    notes.insert(notes.begin(), encoder_note(plan));
    if (options.segments.frames > 0) {
      sink = std::make_unique<SegmentSink>(options, plan);
    } else {
      sink = std::make_unique<EncoderSink>(options, plan);
    }
  }

  std::string depth_note() const {
    const VideoFormat& source = options.source_format;
    if (source.bits == format.bits && !source.is_float()) return "";
    return fmt::format(" ({} is written at {} bits)", source.name(), format.bits);
  }

  std::string y4m_note() const {
    const bool rgb = format.family == ColorFamily::rgb;
    return fmt::format("writing Y4M, {}{}", rgb ? "RGB converted to YUV 4:4:4 (BT.709)" : format.name(), depth_note());
  }

  std::string encoder_note(const EncoderPlan& plan) const {
    const std::string encoded = plan.pixel_format.empty() ? "what comes nearest" : plan.pixel_format;
    std::string text = fmt::format("writing {} as {}", encoded, options.codec);
    if (!plan.quality.empty()) text += fmt::format(", {} {}", plan.quality[0].substr(1), plan.quality[1]);
    if (format.family == ColorFamily::rgb && !plan.keeps_rgb()) {
      text += ", RGB converted to YUV (BT.709)";
      const bool asked = !options.pixel_format.empty();
      if (!asked && plan.extension != ".mkv" && encoded.starts_with("yuv444")) {
        text += ", 4:4:4 because the size is odd";
      }
    }
    return text + depth_note();
  }
};

bool is_y4m(const fs::path& output) {
  return output == "-" || lower_extension(output) == ".y4m";
}

VideoWriter::VideoWriter(VideoWriterOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
VideoWriter::VideoWriter(VideoWriter&&) noexcept = default;
VideoWriter& VideoWriter::operator=(VideoWriter&&) noexcept = default;
VideoWriter::~VideoWriter() = default;

VideoFormat VideoWriter::format() const {
  return impl_->format;
}
std::vector<std::string> VideoWriter::notes() const {
  return impl_->notes;
}
std::int64_t VideoWriter::finished_frames() const {
  return impl_->sink->finished_frames();
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
