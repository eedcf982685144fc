#include "reelgrad/doctor/probes/program_probe.h"

#include <algorithm>
#include <array>
#include <set>
#include <sstream>
#include <string_view>

#include "reelgrad/base/error.h"
#include "reelgrad/base/process.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// PATH's folders as they are called outside the root.
std::string host_folders(const RootFiles& files, const Environment& environment) {
  const auto variable = environment.find("PATH");
  std::istringstream folders(variable == environment.end() ? kDefaultPath : variable->second);
  std::string found;
  for (std::string folder; std::getline(folders, folder, ':');) {
    // What is meant from the working folder on is as good as no folder.
    if (!folder.starts_with('/')) continue;
    const auto there = files.resolved(folder);
    if (there) found += (found.empty() ? "" : ":") + files.host_path(*there).string();
  }
  return found;
}

std::vector<std::string> assignments(const Environment& environment) {
  std::vector<std::string> found;
  for (const auto& [name, value] : environment) found.push_back(name + "=" + value);
  return found;
}

// Empty when it cannot be started, fails or takes too long.
std::string output_of(const std::vector<std::string>& argv, const Environment& environment,
                      Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
  if (left.count() <= 0) return "";
  try {
    const ProcessResult result = run_process(argv, left, assignments(environment));
    return result.timed_out || result.exit_code != 0 ? "" : result.out;
  } catch (const Error&) {
    return "";
  }
}

// The third word of "ffmpeg version 5.1.6 Copyright …".
std::string version_in(const std::string& banner) {
  std::istringstream words(banner);
  std::string program, word, number;
  words >> program >> word >> number;
  return word == "version" ? number : "";
}

}  // namespace

std::vector<std::string> encoders_in(const std::string& list) {
  static constexpr std::array<const char*, 8> kWanted{"libx264",    "libx265",   "ffv1",      "h264_nvenc",
                                                      "hevc_nvenc", "av1_nvenc", "libsvtav1", "prores_ks"};
  // " V....D libx264              libx264 H.264 / AVC …"
  std::set<std::string> names;
  std::istringstream lines(list);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string flags, name;
    if (words >> flags >> name) names.insert(name);
  }
  std::vector<std::string> found;
  for (const char* name : kWanted) {
    if (names.contains(name)) found.emplace_back(name);
  }
  return found;
}

FfmpegFacts probe_ffmpeg(const RootFiles& files, const Environment& environment, std::chrono::milliseconds time_limit) {
  FfmpegFacts facts;
  const auto deadline = Clock::now() + time_limit;
  const std::string folders = host_folders(files, environment);
  const std::string program = folders.empty() ? "" : find_program("ffmpeg", folders);
  if (program.empty()) return facts;
  facts.path = ("/" / fs::path(program).lexically_relative(files.host_path("/"))).string();
  facts.version = version_in(output_of({program, "-version"}, environment, deadline));
  facts.encoders = encoders_in(output_of({program, "-hide_banner", "-encoders"}, environment, deadline));
  return facts;
}

}  // namespace reelgrad
