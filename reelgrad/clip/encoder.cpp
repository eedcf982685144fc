#include "reelgrad/clip/encoder.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>

#include "reelgrad/base/error.h"
#include "reelgrad/base/process.h"
#include "reelgrad/base/text.h"
#include "reelgrad/clip/audio_copy.h"

namespace reelgrad {
namespace {

using Arguments = std::vector<std::string>;

constexpr int kUnspecified = 2;  // of H.273's code points
constexpr int kBt709 = 1;

bool is_known(int code_point) {
  return code_point >= 0 && code_point != kUnspecified;
}

// The tags of the encoded picture. RGB is converted with BT.709 to limited range.
ColorProps encoded_color(const VideoWriterOptions& options) {
  ColorProps color = options.color;
  if (options.source_format.family == ColorFamily::rgb) {
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

// The frames get the tags too, so that no ffmpeg takes the options above for a wish to convert untagged frames.
std::string filter_chain(const VideoWriterOptions& options, const ColorProps& color, const std::string& pixel_format) {
  Arguments filters, tags;
  if (options.source_format.family == ColorFamily::rgb) {
    filters.push_back(
        "scale=out_color_matrix=bt709:out_range=tv:flags=bicubic+accurate_rnd+full_chroma_int+full_chroma_inp");
    filters.push_back("format=" + pixel_format);
  }
  if (color.range == 0 || color.range == 1) tags.push_back(fmt::format("range={}", color.range + 1));
  if (is_known(color.matrix)) tags.push_back(fmt::format("colorspace={}", color.matrix));
  if (is_known(color.primaries)) tags.push_back(fmt::format("color_primaries={}", color.primaries));
  if (is_known(color.transfer)) tags.push_back(fmt::format("color_trc={}", color.transfer));
  if (!tags.empty()) filters.push_back("setparams=" + join(tags, ":"));
  return join(filters, ",");
}

// Reads a part of the audio file where only a part of the video is written.
void add_audio_input(Arguments& args, const VideoWriterOptions& options) {
  if (options.audio_start_s > 0) args.insert(args.end(), {"-ss", fmt::format("{:.6f}", options.audio_start_s)});
  if (options.audio_duration_s > 0) args.insert(args.end(), {"-t", fmt::format("{:.6f}", options.audio_duration_s)});
  args.insert(args.end(), {"-i", "file:" + options.audio_from.string()});
}

}  // namespace

VideoFormat written_format(const VideoFormat& source) {
  VideoFormat written = source;
  written.sample_type = SampleType::integer;
  written.bits = !source.is_float() && source.bits == 8 ? 8 : 10;
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

std::vector<std::string> encoder_command(const VideoWriterOptions& options, const std::string& extension,
                                         std::int64_t ticks_per_second, const std::vector<std::string>& audio,
                                         const std::filesystem::path& output) {
  const std::string pixel_format =
      encoded_pixel_format(written_format(options.source_format), extension, options.width, options.height);
  const ColorProps color = encoded_color(options);
  Arguments args{options.ffmpeg, "-hide_banner", "-loglevel", "error", "-nostats", "-y"};
  // The stream header says all: reading ahead to guess would only hold frames back.
  args.insert(args.end(), {"-probesize", "32", "-analyzeduration", "0", "-f", "nut", "-i", "pipe:0"});
  if (!audio.empty()) add_audio_input(args, options);
  args.insert(args.end(), {"-map", "0:v:0", "-c:v", options.codec});
  if (options.codec.starts_with("lib")) args.insert(args.end(), {"-crf", std::to_string(options.crf)});
  args.insert(args.end(), {"-pix_fmt", pixel_format, frame_timing_option(options.ffmpeg), "passthrough"});
  args.insert(args.end(), {"-enc_time_base", fmt::format("1/{}", ticks_per_second)});
  if (const std::string filters = filter_chain(options, color, pixel_format); !filters.empty()) {
    args.insert(args.end(), {"-vf", filters});
  }
  add_tags(args, color);
  // Seeking lands on a key frame of the file's video: what lies before the part that is wanted is dropped.
  if (options.audio_start_s > 0) args.insert(args.end(), {"-copypriorss:a", "0"});
  const Arguments audio_options = audio_output_options(audio, extension);
  args.insert(args.end(), audio_options.begin(), audio_options.end());
  if (extension == ".mp4" || extension == ".mov") args.insert(args.end(), {"-movflags", "+faststart"});
  args.push_back("file:" + output.string());
  return args;
}

}  // namespace reelgrad
