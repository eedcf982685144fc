#include <fmt/format.h>

#include <filesystem>

#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/base/process.h"
#include "reelgrad/base/text.h"
#include "reelgrad/cli/commands.h"
#include "reelgrad/cli/common.h"
#include "reelgrad/cli/made_of.h"
#include "reelgrad/cli/restore_frames.h"
#include "reelgrad/clip/encoder.h"
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
  WindowOptions windows;
  bool no_audio = false;
  std::vector<std::string> ffmpeg;  // as given to --ffmpeg
  VideoWriterOptions writer;
};

FrameRange frame_range(const std::string& text, std::int64_t frames) {
  return text.empty() ? FrameRange{0, frames} : parse_frame_range(text, frames, "--frames");
}

// --ffmpeg is a program, arguments for its encoder, or both in one.
void read_ffmpeg_options(const std::vector<std::string>& given, VideoWriterOptions& writer) {
  for (const std::string& text : given) {
    if (!find_program(text).empty()) {  // before it is split: its path may hold blanks
      writer.ffmpeg = text;
      continue;
    }
    std::vector<std::string> words = shell_words(text, "--ffmpeg");
    if (!words.empty() && !words[0].starts_with('-')) {
      writer.ffmpeg = words[0];
      words.erase(words.begin());
    }
    writer.encoder_arguments.insert(writer.encoder_arguments.end(), words.begin(), words.end());
  }
}

// A variable clip's fps is an average, which its frames' own durations do not equal.
bool has_constant_rate(const Clip& clip) {
  return fits_rate(clip.frame(0).duration(), clip.info().fps);
}

// From video files only: a script may have cut or reordered its frames.
KeptFrom choose_kept(const Script& script, const Clip& clip, FrameRange range) {
  const ClipInfo& info = clip.info();
  if (script.is_script() || !std::filesystem::is_regular_file(script.path())) return {};
  KeptFrom kept{.file = script.path(), .whole = range.begin == 0 && range.end == info.frames};
  if (kept.whole) return kept;
  if (!has_constant_rate(clip)) {
    log::warning("--frames of a clip with variable frame rate: its audio and all else is left out");
    return {};
  }
  const double seconds_per_frame = static_cast<double>(info.fps.den) / static_cast<double>(info.fps.num);
  kept.start_s = static_cast<double>(range.begin) * seconds_per_frame;
  kept.duration_s = static_cast<double>(range.size()) * seconds_per_frame;
  return kept;
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

// What is known before the engine is opened, which takes a moment.
void check_arguments(ApplyArguments& arguments) {
  arguments.clip.args = parse_args(arguments.args);
  read_ffmpeg_options(arguments.ffmpeg, arguments.writer);
  if (!std::filesystem::exists(arguments.restore.model)) {
    fail(fmt::format("{}: no such model", arguments.restore.model.string()));
  }
  if (!std::filesystem::exists(arguments.clip.path)) {
    fail(fmt::format("{}: no such file or folder", arguments.clip.path.string()));
  }
  refuse_output_over_input(arguments.writer.output, arguments.clip.path);
}

// Begins the output file: everything about it that ffmpeg might refuse is asked here.
VideoWriter open_writer(ApplyArguments& arguments, const Script& script, const Clip& clip, FrameRange range,
                        RestorerSession& session) {
  const ClipInfo& info = clip.info();
  const Frame first = clip.frame(range.begin);
  VideoWriterOptions& options = arguments.writer;
  options.width = info.width * session.scale();
  options.height = info.height * session.scale();
  options.fps = info.fps;
  if (!is_y4m(options.output)) options.last_duration = clip.frame(range.end - 1).duration();
  options.source_format = info.format;
  session.output_color(first.view(), clip.name(), written_format(info.format, options.pixel_format), options.color)
      .raise();
  options.sample_aspect = first.sample_aspect();
  options.kept = choose_kept(script, clip, range);
  options.kept.audio = !arguments.no_audio;
  if (SegmentOptions& segments = options.segments; segments.frames > 0) {
    // A network that restores several frames at once restores them once, if they are not parted.
    segments.frames = (segments.frames + session.outputs() - 1) / session.outputs() * session.outputs();
    segments.made_of = made_of(arguments.restore, session, arguments.clip, arguments.windows);
    segments.made_of.emplace_back("frames", fmt::format("{}:{}", range.begin, range.end));
  }
  return VideoWriter(options);
}

std::string interrupted_text(const VideoWriter& writer) {
  if (writer.finished_frames() == 0) return "interrupted; no file was written";
  return fmt::format("interrupted; {} frames are kept in finished segments, and the same command goes on after them",
                     writer.finished_frames());
}

void restore_and_write(ApplyArguments& arguments, RestorerSession& session, const Clip& clip, FrameRange range,
                       VideoWriter& writer) {
  const std::int64_t done = writer.finished_frames();
  if (done > 0) log::info(fmt::format("{} frames are in finished segments: going on after them", done));
  range.begin += done;
  arguments.windows.segments = session.outputs() > 1;
  try {
    restore_frames(session, clip, range, arguments.windows, writer, {arguments.writer.width, arguments.writer.height});
    writer.finish();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::interrupted) throw;
    throw Error(error.kind(), interrupted_text(writer));
  }
}

void apply(ApplyArguments& arguments) {
  check_arguments(arguments);
  VideoWriterOptions& options = arguments.writer;
  if (options.output == "-") options.standard_output = console::take_stdout();
  std::unique_ptr<RestorerSession> session;
  warn_of_left_out_card(arguments.restore.device);
  engine().open_restorer(arguments.restore, session).raise();
  const Script script = open_clip_argument(arguments.clip, card_of(*session));
  const Clip clip = input_of(script, *session);
  const ClipInfo& info = clip.info();
  const FrameRange range = frame_range(arguments.frames, info.frames);
  VideoWriter writer = open_writer(arguments, script, clip, range, *session);
  session->prepare({info.format, info.width, info.height, writer.format()}).raise();
  log::info(fmt::format("{}: {}x{} {} -> {}x{}, {} frames, {}", clip.name(), info.width, info.height,
                        info.format.name(), options.width, options.height, range.size(), session->describe()));
  for (const std::string& note : writer.notes()) log::info(note);
  restore_and_write(arguments, *session, clip, range, writer);
  if (options.output != "-") log::info(fmt::format("wrote {}", options.output.string()));
}

}  // namespace

void add_apply(CLI::App& app) {
  auto arguments = std::make_shared<ApplyArguments>();
  CLI::App* command = app.add_subcommand("apply", "Restore a video with a trained network");
  command->footer(
      "\nExamples:\n"
      "  reelgrad apply runs/sr2x old.mkv -o new.mkv\n"
      "  reelgrad apply runs/sr2x old.mkv -o new.mkv --codec libx265 --pix-fmt yuv420p10le --ffmpeg \"-preset slow\"\n"
      "  reelgrad apply runs/sr2x film.mkv -o new.mkv --segments 1000     (a crash costs at most 1000 frames)\n"
      "  reelgrad apply model.safetensors script.vpy -o - | ffmpeg -i - …   (Y4M on stdout)\n"
      "8-bit sources are written with 8 bits, deeper or float ones with 10. Audio, subtitles, chapters, attachments "
      "and\n"
      "variable-frame-rate timestamps of a video file are kept, as far as OUT can hold them; what is left out is "
      "said.\n"
      "Nothing stands under OUT before it is complete.");
  command->add_option("MODEL", arguments->restore.model, kModelHelp)->required();
  command->add_option("CLIP", arguments->clip.path, "A video file, a .vpy script or a folder of images")->required();
  command->add_option("-o,--output", arguments->writer.output, ".mkv, .mp4, .mov, .y4m, or - for Y4M on stdout")
      ->required()
      ->type_name("OUT");
  command->add_option("--frames", arguments->frames, "Only these frames: first:end, end not included")
      ->type_name("A:B");
  add_args_option(*command, arguments->args);
  add_restore_options(*command, arguments->restore);
  add_window_options(*command, arguments->windows);
  command->add_option("--codec", arguments->writer.codec, "Video encoder of ffmpeg")->capture_default_str();
  command
      ->add_option("--crf", arguments->writer.crf,
                   "Quality of the encoder, lower is better; where it has no such option, give its own with --ffmpeg "
                   "[16, where it has]")
      ->check(CLI::Range(0, 63));
  command
      ->add_option("--pix-fmt", arguments->writer.pixel_format,
                   "Pixel format to encode, as ffmpeg names it: yuv420p10le, gbrp, …; frames come to it at its depth")
      ->type_name("FORMAT");
  command
      ->add_option("--ffmpeg", arguments->ffmpeg,
                   "Further arguments for the encoder (\"-preset slow -tune film\"), or the ffmpeg program, or both in "
                   "one; repeatable")
      ->type_name("\"[PROGRAM] [-ARGUMENT …]\"")
      ->allow_extra_args(false);
  auto* const segments =
      command
          ->add_option("--segments", arguments->writer.segments.frames,
                       "Encode in segments of N frames, which outlive a crash: the same command then goes on")
          ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000'000}))
          ->type_name("N");
  command->add_flag("--fresh", arguments->writer.segments.fresh, "With --segments: throw away those of an earlier run")
      ->needs(segments);
  command->add_flag("--no-audio", arguments->no_audio, "Leave the audio out");
  command->callback([arguments] { apply(*arguments); });
}

}  // namespace reelgrad::cli
