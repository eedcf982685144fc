#include "reelgrad/clip/encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string_view>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/base/process.h"
#include "reelgrad/base/text.h"
#include "reelgrad/clip/encoder_process.h"
#include "reelgrad/clip/file_name.h"
#include "reelgrad/clip/timeline.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

constexpr int kUnspecified = 2;  // of H.273's code points
constexpr int kBt709 = 1;

bool is_known(int code_point) {
  return code_point >= 0 && code_point != kUnspecified;
}

// Of "yuv420p10le" 10, of "yuv420p" 8: the number before the byte order.
int depth_of(std::string name) {
  if (name.ends_with("le") || name.ends_with("be")) name.resize(name.size() - 2);
  if (name == "p010" || name == "p210" || name == "p410") return 10;
  if (name == "rgb48" || name == "bgr48" || name == "p016") return 16;
  for (const int bits : {9, 10, 12, 14, 16}) {
    const std::string number = std::to_string(bits);
    if (name.ends_with("p" + number) || name.ends_with("gray" + number)) return bits;
  }
  return 8;
}

bool is_rgb(const std::string& pixel_format) {
  return pixel_format.find("rgb") != std::string::npos || pixel_format.find("gbr") != std::string::npos ||
         pixel_format.find("bgr") != std::string::npos;
}

// The tags of the encoded picture. RGB that is encoded as YUV is converted with BT.709 to limited range.
ColorProps encoded_color(const VideoWriterOptions& options, const std::string& pixel_format) {
  ColorProps color = options.color;
  if (is_rgb(pixel_format)) {
    color.matrix = 0;
    color.range = 1;
    color.chroma_location = -1;
  } else if (options.source_format.family == ColorFamily::rgb) {
    color.matrix = kBt709;
    color.range = 0;
    color.chroma_location = -1;
    if (!is_known(color.transfer)) color.transfer = kBt709;
    if (!is_known(color.primaries)) color.primaries = kBt709;
  } else if (color.matrix == 0) {
    color.matrix = -1;  // 0 means RGB
  }
  return color;
}

// ffmpeg's options take H.273's numbers as they are, for range 1 limited and 2 full.
void add_tags(Arguments& args, const ColorProps& color) {
  const auto add = [&](const char* option, bool known, int value) {
    if (known) args.insert(args.end(), {option, std::to_string(value)});
  };
  add("-colorspace", is_known(color.matrix), color.matrix);
  add("-color_primaries", is_known(color.primaries), color.primaries);
  add("-color_trc", is_known(color.transfer), color.transfer);
  add("-color_range", color.range == 0 || color.range == 1, color.range + 1);
  add("-chroma_sample_location", color.chroma_location >= 0, color.chroma_location + 1);
}

std::string tags_filter(const ColorProps& color) {
  Arguments tags;
  if (color.range == 0 || color.range == 1) tags.push_back(fmt::format("range={}", color.range + 1));
  if (is_known(color.matrix)) tags.push_back(fmt::format("colorspace={}", color.matrix));
  if (is_known(color.primaries)) tags.push_back(fmt::format("color_primaries={}", color.primaries));
  if (is_known(color.transfer)) tags.push_back(fmt::format("color_trc={}", color.transfer));
  return tags.empty() ? "" : "setparams=" + join(tags, ":");
}

// The frames get the tags too, so that no ffmpeg takes the options above for a wish to convert untagged frames.
std::string filter_chain(const VideoWriterOptions& options, const ColorProps& color, const std::string& pixel_format) {
  static constexpr const char* kExact = "flags=bicubic+accurate_rnd+full_chroma_int+full_chroma_inp";
  const bool from_rgb = options.source_format.family == ColorFamily::rgb, to_rgb = is_rgb(pixel_format);
  Arguments filters;
  if (from_rgb && !to_rgb) filters.push_back(fmt::format("scale=out_color_matrix=bt709:out_range=tv:{}", kExact));
  if (!from_rgb && to_rgb) filters = {tags_filter(options.color), fmt::format("scale={}", kExact)};
  if (from_rgb != to_rgb && !pixel_format.empty()) filters.push_back("format=" + pixel_format);
  filters.push_back(tags_filter(color));
  std::erase(filters, "");
  return join(filters, ",");
}

void add(Arguments& args, const Arguments& more) {
  args.insert(args.end(), more.begin(), more.end());
}

// --- What this ffmpeg and this encoder are ---

// Every frame with its own timestamp: -fps_mode since ffmpeg 5.1, -vsync before. A version that is no number (built
// from a repository) is a new one.
std::string frame_timing_option(const std::string& ffmpeg) {
  const std::string text = run_process({ffmpeg, "-version"}, std::chrono::seconds(10)).out;
  int major = 0, minor = 0;
  const bool numbered = std::sscanf(text.c_str(), "ffmpeg version %*[n]%d.%d", &major, &minor) == 2 ||
                        std::sscanf(text.c_str(), "ffmpeg version %d.%d", &major, &minor) == 2;
  const bool is_old = numbered && (major < 5 || (major == 5 && minor < 1));
  return is_old ? "-vsync" : "-fps_mode";
}

// ffmpeg's own description of the encoder.
std::string encoder_help(const VideoWriterOptions& options) {
  if (find_program(options.ffmpeg).empty()) {
    fail(
        fmt::format("{}: writing video needs ffmpeg, and \"{}\" was not found; install the package ffmpeg, or name the "
                    "program with --ffmpeg",
                    options.output.string(), options.ffmpeg));
  }
  std::string help =
      run_process({options.ffmpeg, "-hide_banner", "-h", "encoder=" + options.codec}, std::chrono::seconds(30)).out;
  if (help.find("Encoder " + options.codec) != std::string::npos) return help;
  fail(fmt::format("{}: {} has no encoder \"{}\" (`{} -encoders` lists them)", options.output.string(), options.ffmpeg,
                   options.codec, options.ffmpeg));
}

// Empty: it does not say.
Arguments pixel_formats(const std::string& help) {
  static constexpr std::string_view kMark = "Supported pixel formats: ";
  const auto at = help.find(kMark);
  if (at == std::string::npos) return {};
  const std::string line = help.substr(at + kMark.size(), help.find('\n', at) - at - kMark.size());
  Arguments names = split(line, ' ');
  std::erase(names, "");
  return names;
}

std::string choose_pixel_format(const VideoWriterOptions& options, const VideoFormat& written,
                                const std::string& extension, const std::string& help) {
  const Arguments known = pixel_formats(help);
  const auto takes = [&](const std::string& name) {
    return known.empty() || std::find(known.begin(), known.end(), name) != known.end();
  };
  if (options.pixel_format.empty()) {
    const std::string ours = encoded_pixel_format(written, extension, options.width, options.height);
    return takes(ours) ? ours : "";
  }
  if (!takes(options.pixel_format)) {
    fail_usage(fmt::format("--pix-fmt {}: {} takes {}", options.pixel_format, options.codec, join(known, " ")));
  }
  return options.pixel_format;
}

Arguments choose_quality(const VideoWriterOptions& options, const std::string& help) {
  constexpr int kUsual = 16;
  const std::string value = std::to_string(options.crf.value_or(kUsual));
  const auto has = [&](const char* option) { return help.find(fmt::format("\n  {} ", option)) != std::string::npos; };
  if (has("-crf")) {
    // libvpx and libaom take it for a limit unless the bit rate is 0.
    const bool limit = options.codec.starts_with("libvpx") || options.codec.starts_with("libaom");
    return limit ? Arguments{"-crf", value, "-b:v", "0"} : Arguments{"-crf", value};
  }
  if (has("-cq")) return {"-cq", value, "-b:v", "0"};  // NVIDIA's
  if (options.crf) {
    fail_usage(fmt::format("--crf {}: {} has no such option; give it its own with --ffmpeg \"-…\"", *options.crf,
                           options.codec));
  }
  return {};
}

// --- Parts of the command ---

Arguments beginning(const VideoWriterOptions& options) {
  return {options.ffmpeg, "-hide_banner", "-loglevel", "error", "-nostats", "-y"};
}

// The stream header says all: reading ahead to guess would only hold frames back.
void add_raw_input(Arguments& args) {
  add(args, {"-probesize", "32", "-analyzeduration", "0", "-f", "nut", "-i", "pipe:0"});
}

void add_delay(Arguments& args, const EncoderPlan& plan) {
  if (plan.kept.video_delay_s > 0) add(args, {"-itsoffset", fmt::format("{:.6f}", plan.kept.video_delay_s)});
}

void add_encoding(Arguments& args, const VideoWriterOptions& options, const EncoderPlan& plan,
                  std::int64_t ticks_per_second) {
  const ColorProps color = encoded_color(options, plan.pixel_format);
  add(args, {"-map", "0:v:0", "-c:v", options.codec});
  add(args, plan.quality);
  if (!plan.pixel_format.empty()) add(args, {"-pix_fmt", plan.pixel_format});
  add(args, {plan.timing_option, "passthrough", "-enc_time_base", fmt::format("1/{}", ticks_per_second)});
  if (const std::string filters = filter_chain(options, color, plan.pixel_format); !filters.empty()) {
    add(args, {"-vf", filters});
  }
  add_tags(args, color);
  add(args, options.encoder_arguments);
}

void add_container(Arguments& args, const VideoWriterOptions& options, const EncoderPlan& plan) {
  add(args, plan.kept.output);
  // Chapters end with the part that is written. A little more, so that rounding costs no frame.
  if (!options.kept.file.empty() && !options.kept.whole) {
    add(args, {"-t", fmt::format("{:.6f}", options.kept.duration_s + 0.001)});
  }
  if (plan.extension == ".mp4" || plan.extension == ".mov") add(args, {"-movflags", "+faststart"});
}

void add_output(Arguments& args, const fs::path& output) {
  args.push_back("file:" + output.string());
}

// --- How long the last frame is shown ---

// Every other frame is shown until the next one. Of the durations that packets have, containers use none but that of
// the last, and ffmpeg takes 1 / fps for it. So all packets are given the last frame's, from the start, when nobody
// knows yet which packet will be last: encoders reorder them. `per_second`: of the packets' ticks, for ffmpeg to
// reckon.
std::string last_duration_filter(Rational duration, const std::string& per_second) {
  return fmt::format("setts=pts=PTS:dts=DTS:duration=round({}/{}*{})", duration.num, duration.den, per_second);
}

// TB is the packets' time base, or should be: ffmpeg 5.1 hands them to the filter in the container's own ticks, which
// in Matroska are milliseconds, and states another.
bool counts_in_time_base(const VideoWriterOptions& options, EncoderPlan plan) {
  constexpr int kShown_s = 7;
  plan.kept = {};
  plan.last_duration_filter = last_duration_filter({kShown_s, 1}, "1/TB");
  const PendingFile file(options.output);
  EncoderProcess process(options, plan,
                         encoder_command(options, plan, Timeline(options.fps).ticks_per_second(), file.path()), {});
  process.write(OwnedPicture(plan.written, options.width, options.height).view(), {});
  process.finish();
  const std::string listed =
      run_process({options.ffmpeg, "-hide_banner", "-i", "file:" + file.path().string()}, std::chrono::seconds(30)).err;
  return listed.find(fmt::format("Duration: 00:00:{:02}", kShown_s)) != std::string::npos;
}

// Empty where ffmpeg is right by itself, and where it is too old to be told.
std::string choose_last_duration_filter(const VideoWriterOptions& options, const EncoderPlan& plan) {
  const Rational duration = options.last_duration, fps = options.fps;
  if (duration.num <= 0 || duration.den <= 0) return "";
  const auto product = [](std::int64_t a, std::int64_t b) { return static_cast<__int128>(a) * b; };
  if (fps.num > 0 && product(duration.num, fps.num) == product(duration.den, fps.den)) return "";
  const std::string help =
      run_process({options.ffmpeg, "-hide_banner", "-h", "bsf=setts"}, std::chrono::seconds(30)).out;
  if (help.find("-duration ") == std::string::npos) return "";
  const bool milliseconds = plan.extension == ".mkv" && !counts_in_time_base(options, plan);
  return last_duration_filter(duration, milliseconds ? "1000" : "1/TB");
}

void add_last_duration(Arguments& args, const EncoderPlan& plan) {
  if (!plan.last_duration_filter.empty()) add(args, {"-bsf:v", plan.last_duration_filter});
}

// --- The trial ---

// Writes a black frame with all that has been chosen: what ffmpeg will not do is known before the first real one.
void try_encoder(const VideoWriterOptions& options, const EncoderPlan& plan) {
  const PendingFile file(options.output);
  Arguments args = encoder_command(options, plan, Timeline(options.fps).ticks_per_second(), file.path());
  // A moment of what is taken along, too; but past the frame, for some encoders never end that were given none.
  const Arguments moment{"-t", fmt::format("{:.3f}", plan.kept.video_delay_s + 0.1)};
  args.insert(args.end() - 1, moment.begin(), moment.end());
  const OwnedPicture black(plan.written, options.width, options.height);
  EncoderProcess process(options, plan, args, {});
  process.write(black.view(), {});
  process.finish();
}

}  // namespace

VideoFormat written_format(const VideoFormat& source, const std::string& pixel_format) {
  VideoFormat written = source;
  written.sample_type = SampleType::integer;
  written.bits = !source.is_float() && source.bits == 8 ? 8 : 10;
  if (!pixel_format.empty()) written.bits = depth_of(pixel_format);
  return written;
}

std::string raw_video_fourcc(const VideoFormat& format) {
  const bool deep = format.bits != 8;
  const char depth = static_cast<char>(format.bits);
  if (format.family == ColorFamily::rgb) return {'G', '3', 0, depth};
  if (format.family == ColorFamily::gray) return deep ? std::string{'Y', '1', 0, depth} : "Y800";
  const int w = format.subsampling_w, h = format.subsampling_h;
  if (w == 0 && h == 0) return deep ? std::string{'Y', '3', 0, depth} : "444P";
  if (w == 1 && h == 0) return deep ? std::string{'Y', '3', 10, depth} : "Y42B";
  if (w == 1 && h == 1) return deep ? std::string{'Y', '3', 11, depth} : "I420";
  if (w == 2 && h == 2 && !deep) return "YUV9";
  if (w == 2 && h == 0 && !deep) return "Y41B";
  if (w == 0 && h == 1 && !deep) return "440P";
  fail_usage(
      fmt::format("video in {} cannot be written; allowed are Gray, RGB and YUV 4:2:0, 4:2:2 and 4:4:4 (others "
                  "at 8 bits): resize the clip, for example with clip.resize.Bicubic(format=vs.YUV420P10)",
                  format.name()));
}

std::string encoded_pixel_format(const VideoFormat& written, const std::string& extension, int width, int height) {
  const std::string depth = written.bits == 8 ? "" : std::to_string(written.bits) + "le";
  if (written.family == ColorFamily::gray) return "gray" + depth;
  if (written.family == ColorFamily::rgb) {
    const bool subsampled = extension != ".mkv" && width % 2 == 0 && height % 2 == 0;
    return (subsampled ? "yuv420p" : "yuv444p") + depth;
  }
  // What H.264 lacks goes into the next finer sampling that it has.
  const bool half_width = written.subsampling_w > 0, half_height = half_width && written.subsampling_h > 0;
  return (half_height ? "yuv420p" : half_width ? "yuv422p" : "yuv444p") + depth;
}

bool EncoderPlan::keeps_rgb() const {
  return is_rgb(pixel_format);
}

EncoderPlan plan_encoder(const VideoWriterOptions& options) {
  EncoderPlan plan{.extension = lower_extension(options.output),
                   .written = written_format(options.source_format, options.pixel_format)};
  raw_video_fourcc(plan.written);  // refuses what ffmpeg could not be told
  const std::string help = encoder_help(options);
  plan.pixel_format = choose_pixel_format(options, plan.written, plan.extension, help);
  plan.quality = choose_quality(options, help);
  plan.timing_option = frame_timing_option(options.ffmpeg);
  if (!options.kept.file.empty()) {
    plan.kept = kept_options(options.kept, list_streams(options.ffmpeg, options.kept.file), plan.extension);
  }
  try_encoder(options, plan);
  plan.last_duration_filter = choose_last_duration_filter(options, plan);
  return plan;
}

std::vector<std::string> encoder_command(const VideoWriterOptions& options, const EncoderPlan& plan,
                                         std::int64_t ticks_per_second, const fs::path& output) {
  Arguments args = beginning(options);
  add_delay(args, plan);
  add_raw_input(args);
  add(args, plan.kept.input);
  add_last_duration(args, plan);
  add_encoding(args, options, plan, ticks_per_second);
  add_container(args, options, plan);
  add_output(args, output);
  return args;
}

std::vector<std::string> segment_command(const VideoWriterOptions& options, const EncoderPlan& plan,
                                         std::int64_t ticks_per_second, const fs::path& output) {
  Arguments args = beginning(options);
  args.push_back("-copyts");
  add_raw_input(args);
  add_encoding(args, options, plan, ticks_per_second);
  add(args, {"-write_index", "0", "-f", "nut"});
  add_output(args, output);
  return args;
}

std::vector<std::string> join_command(const VideoWriterOptions& options, const EncoderPlan& plan,
                                      const fs::path& output) {
  Arguments args = beginning(options);
  add_delay(args, plan);
  add(args, {"-f", "nut", "-i", "pipe:0"});
  add(args, plan.kept.input);
  add(args, {"-map", "0:v:0", "-c:v", "copy"});
  add_last_duration(args, plan);
  add_tags(args, encoded_color(options, plan.pixel_format));
  add_container(args, options, plan);
  add_output(args, output);
  return args;
}

}  // namespace reelgrad
