#include "reelgrad/clip/kept_streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <sstream>
#include <string_view>

#include "reelgrad/base/error.h"
#include "reelgrad/base/process.h"
#include "reelgrad/base/text.h"

namespace reelgrad {
namespace {

using namespace std::chrono_literals;
using Kind = FileStream::Kind;
using Arguments = std::vector<std::string>;

std::string last_line(const std::string& text) {
  const auto end = text.find_last_not_of(" \r\n");
  if (end == std::string::npos) return "no reason given";
  const auto begin = text.find_last_of('\n', end);
  return text.substr(begin == std::string::npos ? 0 : begin + 1, end - (begin == std::string::npos ? -1 : begin));
}

// What stands after `mark` in the line, up to one of `ends`; nullopt: the mark does not.
std::optional<std::string> text_after(std::string_view line, std::string_view mark, const char* ends) {
  const auto at = line.find(mark);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = line.substr(at + mark.size());
  return std::string(rest.substr(0, rest.find_first_of(ends)));
}

Kind kind_named(const std::string& name, std::string_view line) {
  if (name == "Video") return line.find("(attached pic)") == std::string_view::npos ? Kind::video : Kind::picture;
  if (name == "Audio") return Kind::audio;
  if (name == "Subtitle") return Kind::subtitle;
  return name == "Attachment" ? Kind::attachment : Kind::data;
}

// "  Stream #0:1[0x2](und): Audio: aac (LC) (mp4a / 0x6134706D), 48000 Hz, 5.1, …"
std::optional<FileStream> stream_of(std::string_view line) {
  const auto index = text_after(line, "Stream #0:", "[(:");
  const auto colon = line.find(": ");
  if (!index || colon == std::string_view::npos) return std::nullopt;
  FileStream stream{.index = std::atoi(index->c_str())};
  const std::string_view head = line.substr(0, colon), rest = line.substr(colon);
  stream.language = text_after(head, "(", ")").value_or("");
  const std::string kind = text_after(rest, ": ", ":").value_or("");
  stream.kind = kind_named(kind, line);
  stream.codec = text_after(rest, kind + ": ", " ,").value_or("");
  return stream;
}

template <std::size_t N>
bool holds(const std::array<std::string_view, N>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool takes_audio(const std::string& codec, const std::string& extension) {
  static constexpr std::array<std::string_view, 8> kMp4{"aac", "mp3", "mp2", "ac3", "eac3", "opus", "alac", "dts"};
  if (extension == ".mkv") return true;
  if (extension == ".mov" && codec.starts_with("pcm_")) return true;
  return holds(kMp4, codec);
}

// The subtitle codec to write: "copy", one to convert to, or empty where the container can hold none like it.
std::string written_subtitle(const std::string& codec, const std::string& extension) {
  static constexpr std::array<std::string_view, 6> kText{"subrip", "srt", "ass", "ssa", "webvtt", "text"};
  static constexpr std::array<std::string_view, 4> kMatroska{"hdmv_pgs_subtitle", "dvd_subtitle", "dvb_subtitle",
                                                             "hdmv_text_subtitle"};
  if (extension == ".mkv") {
    if (codec == "mov_text") return "subrip";
    return holds(kText, codec) || holds(kMatroska, codec) ? "copy" : "";
  }
  if (codec == "mov_text") return "copy";
  if (holds(kText, codec)) return "mov_text";
  return codec == "dvd_subtitle" && extension == ".mp4" ? "copy" : "";
}

// Builds ffmpeg's output options stream by stream.
class Mapping {
 public:
  Mapping(const KeptFrom& kept, const std::string& extension) : kept_(kept), extension_(extension) {}

  void add(const FileStream& stream) {
    switch (stream.kind) {
      case Kind::video:
        return add_video(stream);
      case Kind::audio:
        return add_audio(stream);
      case Kind::subtitle:
        return add_subtitle(stream);
      case Kind::attachment:
        return extension_ == ".mkv" ? map(stream, "t", "copy") : leave_out("an attachment");
      case Kind::picture:
        return leave_out("a cover picture");
      case Kind::data:
        // The titles of .mp4 chapters, which go along as chapters.
        if (stream.codec != "bin_data") leave_out(fmt::format("a data track ({})", stream.codec));
    }
  }

  KeptOptions finish(bool chapters) {
    // Which container it was is told by the new one.
    for (const char* tag : {"major_brand", "minor_version", "compatible_brands"}) {
      options_.output.insert(options_.output.end(), {"-metadata", std::string(tag) + "="});
    }
    options_.output.insert(options_.output.begin(), {"-map_metadata", "1", "-map_chapters", chapters ? "1" : "-1"});
    if (!left_out_.empty()) {
      options_.notes.push_back(fmt::format("left out, as {} does not hold it: {}", extension_, join(left_out_, ", ")));
    }
    return std::move(options_);
  }

 private:
  void map(const FileStream& stream, const std::string& type, const std::string& codec) {
    options_.output.insert(options_.output.end(), {"-map", fmt::format("1:{}", stream.index),
                                                   fmt::format("-c:{}:{}", type, count_[type]++), codec});
  }

  void leave_out(std::string what) { left_out_.push_back(std::move(what)); }

  // Of several, the first is the one that is restored.
  void add_video(const FileStream& stream) {
    if (count_["v"]++ > 0) return leave_out("a further video track");
    const auto tag = [&](const char* name, const std::string& value) {
      if (!value.empty()) {
        options_.output.insert(options_.output.end(), {"-metadata:s:v:0", fmt::format("{}={}", name, value)});
      }
    };
    tag("language", stream.language == "und" ? "" : stream.language);
    tag("title", stream.title);
  }

  void add_audio(const FileStream& stream) {
    if (!kept_.audio) return;
    const bool taken = takes_audio(stream.codec, extension_);
    map(stream, "a", taken ? "copy" : "aac");
    if (taken) return;
    options_.notes.push_back(
        fmt::format("audio track {}: {} does not go into {}, encoded to AAC", count_["a"], stream.codec, extension_));
  }

  void add_subtitle(const FileStream& stream) {
    const std::string codec = written_subtitle(stream.codec, extension_);
    if (codec.empty()) return leave_out(fmt::format("a subtitle track ({})", stream.codec));
    map(stream, "s", codec);
  }

  const KeptFrom& kept_;
  const std::string& extension_;
  std::map<std::string, int> count_;
  std::vector<std::string> left_out_;
  KeptOptions options_;
};

// Reads a part of the file where only a part of the video is written.
Arguments input_options(const KeptFrom& kept, double video_delay_s) {
  Arguments args;
  if (!kept.whole) {
    args.insert(args.end(), {"-ss", fmt::format("{:.6f}", kept.start_s + video_delay_s), "-t",
                             fmt::format("{:.6f}", kept.duration_s)});
  }
  args.insert(args.end(), {"-i", "file:" + kept.file.string()});
  return args;
}

// Of "#tb 0: 1/1000" and "0, 480, 480, 40, 5712, 0x…", its first packet: its timestamp in seconds.
std::optional<double> first_timestamp_s(const std::string& framecrc) {
  std::istringstream lines(framecrc);
  long long num = 0, den = 0, dts = 0, pts = 0;
  for (std::string line; std::getline(lines, line);) {
    std::sscanf(line.c_str(), "#tb 0: %lld/%lld", &num, &den);
    if (std::sscanf(line.c_str(), "0, %lld, %lld,", &dts, &pts) == 2 && den > 0) {
      return static_cast<double>(pts) * static_cast<double>(num) / static_cast<double>(den);
    }
  }
  return std::nullopt;
}

double video_delay_s(const std::string& ffmpeg, const std::filesystem::path& file, double start_s) {
  const ProcessResult run = run_process({ffmpeg, "-v", "error", "-nostdin", "-copyts", "-i", "file:" + file.string(),
                                         "-map", "0:v:0", "-c", "copy", "-frames:v", "1", "-f", "framecrc", "-"},
                                        60s);
  const double delay = first_timestamp_s(run.out).value_or(start_s) - start_s;
  constexpr double kAudible = 0.001;
  return delay < kAudible ? 0 : delay;
}

}  // namespace

FileStreams list_streams(const std::string& ffmpeg, const std::filesystem::path& file) {
  // Without an output ffmpeg lists the streams and ends; ffprobe need not be installed.
  const ProcessResult run = run_process({ffmpeg, "-hide_banner", "-nostdin", "-i", "file:" + file.string()}, 60s);
  if (run.err.find("Input #0") == std::string::npos) {
    fail(fmt::format("reading the streams of {}: {}", file.string(), last_line(run.err)));
  }
  FileStreams listed;
  double start_s = 0;
  std::istringstream lines(run.err);
  for (std::string line; std::getline(lines, line);) {
    if (const auto start = text_after(line, ", start: ", ",")) start_s = std::atof(start->c_str());
    if (line.starts_with("  Chapter")) listed.chapters = true;
    if (const auto stream = stream_of(line)) listed.streams.push_back(*stream);
    // "      title           : Commentary", below its stream
    if (const auto title = text_after(line, "      title           : ", "\r\n"); title && !listed.streams.empty()) {
      listed.streams.back().title = *title;
    }
  }
  listed.video_delay_s = video_delay_s(ffmpeg, file, start_s);
  return listed;
}

KeptOptions kept_options(const KeptFrom& kept, const FileStreams& listed, const std::string& extension) {
  Mapping mapping(kept, extension);
  for (const FileStream& stream : listed.streams) mapping.add(stream);
  KeptOptions options = mapping.finish(listed.chapters);
  options.input = input_options(kept, listed.video_delay_s);
  if (kept.whole) options.video_delay_s = listed.video_delay_s;
  if (!kept.whole) {
    // Seeking lands on a key frame of the file's video: what lies before the part that is wanted is dropped.
    options.output.insert(options.output.end(), {"-copypriorss:a", "0", "-copypriorss:s", "0"});
  }
  return options;
}

}  // namespace reelgrad
