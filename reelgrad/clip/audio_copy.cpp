#include "reelgrad/clip/audio_copy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>

#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/base/process.h"

namespace reelgrad {
namespace {

using namespace std::chrono_literals;

bool container_takes(const std::string& codec, const std::string& extension) {
  static constexpr std::array<std::string_view, 8> kMp4{"aac", "mp3", "mp2", "ac3", "eac3", "opus", "alac", "dts"};
  if (extension == ".mkv") return true;
  if (extension == ".mov" && codec.starts_with("pcm_")) return true;
  return std::find(kMp4.begin(), kMp4.end(), codec) != kMp4.end();
}

std::string last_line(const std::string& text) {
  const auto end = text.find_last_not_of(" \r\n");
  if (end == std::string::npos) return "no reason given";
  const auto begin = text.find_last_of('\n', end);
  return text.substr(begin == std::string::npos ? 0 : begin + 1, end - (begin == std::string::npos ? -1 : begin));
}

}  // namespace

std::vector<std::string> audio_codecs(const std::string& ffmpeg, const std::filesystem::path& file) {
  // Without an output ffmpeg lists the streams and ends; ffprobe need not be installed.
  const ProcessResult run = run_process({ffmpeg, "-hide_banner", "-nostdin", "-i", "file:" + file.string()}, 60s);
  if (run.err.find("Input #0") == std::string::npos) {
    fail(fmt::format("reading the audio of {}: {}", file.string(), last_line(run.err)));
  }
  std::vector<std::string> codecs;
  std::istringstream lines(run.err);
  for (std::string line; std::getline(lines, line);) {
    // "  Stream #0:1[0x2](und): Audio: aac (LC) (mp4a / 0x6134706D), 48000 Hz, 5.1, …"
    static constexpr std::string_view kAudio = ": Audio: ";
    const auto at = line.find(kAudio);
    if (at == std::string::npos || line.find("Stream #0:") == std::string::npos) continue;
    const auto begin = at + kAudio.size();
    codecs.push_back(line.substr(begin, line.find_first_of(" ,", begin) - begin));
  }
  return codecs;
}

std::vector<std::string> audio_output_options(const std::vector<std::string>& codecs, const std::string& extension) {
  std::vector<std::string> options;
  for (std::size_t i = 0; i < codecs.size(); ++i) {
    if (!container_takes(codecs[i], extension)) {
      log::info(fmt::format("audio track {}: {} does not go into {}, encoded to AAC", i + 1, codecs[i], extension));
    }
    options.insert(options.end(), {"-map", fmt::format("1:a:{}", i), fmt::format("-c:a:{}", i),
                                   container_takes(codecs[i], extension) ? "copy" : "aac"});
  }
  return options;
}

}  // namespace reelgrad
