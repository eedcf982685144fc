#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <thread>

#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/base/queue.h"
#include "reelgrad/base/signals.h"
#include "reelgrad/base/text.h"
#include "reelgrad/cli/commands.h"
#include "reelgrad/cli/common.h"
#include "reelgrad/clip/interlaced.h"
#include "reelgrad/clip/timeline.h"
#include "reelgrad/clip/video_writer.h"
#include "reelgrad/clip/window_reader.h"

namespace reelgrad::cli {
namespace {

struct ApplyArguments {
  RestoreRequest restore;
  ClipArgument clip;
  std::vector<std::string> args;
  std::string frames;
  bool no_audio = false;
  VideoWriterOptions writer;
};

struct RestoredFrame {
  OwnedPicture picture;
  Rational duration;
};

// Encodes in its own thread, so that the network need not wait for the encoder.
class EncoderThread {
 public:
  explicit EncoderThread(VideoWriter writer) : writer_(std::move(writer)), queue_(4), thread_([this] { run(); }) {}

  ~EncoderThread() {
    queue_.close();
    if (thread_.joinable()) thread_.join();
  }

  // Throws what the encoder failed with.
  void push(RestoredFrame frame) {
    if (!queue_.push(std::move(frame))) finish_thread();
  }

  void finish() {
    finish_thread();
    writer_.finish();
  }

 private:
  void run() {
    try {
      while (auto frame = queue_.pop()) writer_.write(frame->picture.view(), frame->duration);
    } catch (...) {
      failure_ = std::current_exception();
      queue_.close();
    }
  }

  void finish_thread() {
    queue_.close();
    if (thread_.joinable()) thread_.join();
    if (failure_) std::rethrow_exception(failure_);
  }

  VideoWriter writer_;
  BoundedQueue<RestoredFrame> queue_;
  std::exception_ptr failure_;
  std::thread thread_;
};

FrameRange frame_range(const std::string& text, std::int64_t frames) {
  return text.empty() ? FrameRange{0, frames} : parse_frame_range(text, frames, "--frames");
}

// A variable clip's fps is an average, which its frames' own durations do not equal.
bool has_constant_rate(const Clip& clip) {
  return fits_rate(clip.frame(0).duration(), clip.info().fps);
}

// Audio is taken along from video files only: a script may have cut or reordered its frames.
void choose_audio(VideoWriterOptions& writer, const Script& script, const Clip& clip, FrameRange range) {
  const ClipInfo& info = clip.info();
  const bool whole = range.begin == 0 && range.end == info.frames;
  if (script.is_script() || !std::filesystem::is_regular_file(script.path())) return;
  if (!whole && !has_constant_rate(clip)) {
    log::warning("--frames of a clip with variable frame rate: the audio is left out");
    return;
  }
  writer.audio_from = script.path();
  if (whole) return;
  const double seconds_per_frame = static_cast<double>(info.fps.den) / static_cast<double>(info.fps.num);
  writer.audio_start_s = static_cast<double>(range.begin) * seconds_per_frame;
  writer.audio_duration_s = static_cast<double>(range.size()) * seconds_per_frame;
}

std::optional<CardId> card_of(const RestorerSession& session) {
  const GpuFrameTarget* target = session.frame_target();
  return target ? std::optional(target->card()) : std::nullopt;
}

// The clip to restore, with its frames on the session's card where that can be.
Clip input_of(const Script& script, const RestorerSession& session) {
  const GpuFrameTarget* target = session.frame_target();
  if (!target) return input_clip(script);
  const Clip clip = input_clip(script).on_gpu(*target);
  log::info(clip.describe_frame_path());
  return clip;
}

void apply(ApplyArguments& arguments) {
  arguments.clip.args = parse_args(arguments.args);
  if (!std::filesystem::exists(arguments.restore.model)) {
    fail(fmt::format("{}: no such model", arguments.restore.model.string()));
  }
  if (!std::filesystem::exists(arguments.clip.path)) {  // known before the engine is opened, which takes a moment
    fail(fmt::format("{}: no such file or folder", arguments.clip.path.string()));
  }
  refuse_output_over_input(arguments.writer.output, arguments.clip.path);
  if (arguments.writer.output == "-") arguments.writer.standard_output = console::take_stdout();
  std::unique_ptr<RestorerSession> session;
  warn_of_left_out_card(arguments.restore.device);
  engine().open_restorer(arguments.restore, session).raise();
  const Script script = open_clip_argument(arguments.clip, card_of(*session));
  const Clip clip = input_of(script, *session);
  const ClipInfo& info = clip.info();
  const FrameRange range = frame_range(arguments.frames, info.frames);

  WindowReader windows(clip, range, session->window());
  const Frame first = clip.frame(range.begin);
  VideoWriterOptions& options = arguments.writer;
  options.width = info.width * session->scale();
  options.height = info.height * session->scale();
  options.fps = info.fps;
  options.source_format = info.format;
  options.color = first.view().color;
  options.sample_aspect = first.sample_aspect();
  if (!arguments.no_audio) choose_audio(options, script, clip, range);
  VideoWriter writer(options);
  const VideoFormat format = writer.format();
  log::info(fmt::format("{}: {}x{} {} -> {}x{}, {} frames, {}", clip.name(), info.width, info.height,
                        info.format.name(), options.width, options.height, range.size(), session->describe()));
  log::info(writer.format_note());

  EncoderThread encoder(std::move(writer));
  console::Progress progress;
  for (std::int64_t n = range.begin; n < range.end; ++n) {
    if (stop_requested()) throw Error(ErrorKind::interrupted, "interrupted; no file was written");
    const std::vector<FrameView> window = windows.next();
    const Frame& middle = windows.middle();
    warn_if_interlaced(clip, middle);
    RestoredFrame restored{OwnedPicture(format, options.width, options.height, middle.view().color), middle.duration()};
    RestoreJob job{.clip = clip.name()};
    for (std::size_t i = 0; i < window.size(); ++i) {
      const std::int64_t number = n + static_cast<std::int64_t>(i) - static_cast<std::int64_t>(window.size()) / 2;
      job.window.push_back({window[i], std::clamp<std::int64_t>(number, 0, info.frames - 1)});
    }
    ColorProps color;
    session->restore(job, {restored.picture.mutable_view()}, color).raise();
    encoder.push(std::move(restored));
    progress.update("frame", n + 1 - range.begin, range.size(), "fps");
  }
  encoder.finish();
  if (options.output != "-") log::info(fmt::format("wrote {}", options.output.string()));
}

}  // namespace

void add_apply(CLI::App& app) {
  auto arguments = std::make_shared<ApplyArguments>();
  CLI::App* command = app.add_subcommand("apply", "Restore a video with a trained network");
  command->footer(
      "\nExamples:\n"
      "  reelgrad apply runs/sr2x old.mkv -o new.mkv\n"
      "  reelgrad apply model.safetensors script.vpy -o - | ffmpeg -i - …   (Y4M on stdout)\n"
      "8-bit sources are written with 8 bits, deeper or float ones with 10. Audio, frame rate and variable-frame-rate\n"
      "timestamps of a video file are kept. Nothing stands under OUT before it is complete.");
  command->add_option("MODEL", arguments->restore.model, kModelHelp)->required();
  command->add_option("CLIP", arguments->clip.path, "A video file, a .vpy script or a folder of images")->required();
  command->add_option("-o,--output", arguments->writer.output, ".mkv, .mp4, .y4m, or - for Y4M on stdout")
      ->required()
      ->type_name("OUT");
  command->add_option("--frames", arguments->frames, "Only these frames: first:end, end not included")
      ->type_name("A:B");
  add_args_option(*command, arguments->args);
  add_restore_options(*command, arguments->restore);
  command->add_option("--codec", arguments->writer.codec, "Video encoder of ffmpeg")->capture_default_str();
  command->add_option("--crf", arguments->writer.crf, "Quality of the encoder, lower is better")
      ->check(CLI::Range(0, 63))
      ->capture_default_str();
  command->add_option("--ffmpeg", arguments->writer.ffmpeg, "The ffmpeg program")->capture_default_str();
  command->add_flag("--no-audio", arguments->no_audio, "Leave the audio out");
  command->callback([arguments] { apply(*arguments); });
}

}  // namespace reelgrad::cli
