#include "reelgrad/clip/video_segments.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "reelgrad/base/error.h"
#include "reelgrad/base/mapped_file.h"
#include "reelgrad/base/signals.h"
#include "reelgrad/base/text.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::int64_t kOrigin_s = 24 * 60 * 60;
constexpr std::size_t kNutFileIdBytes = 25;  // what a NUT file begins with, and its packets come after
constexpr int kManifestVersion = 1;
constexpr const char* kCommand = "ffmpeg's options";

fs::path folder_beside(const fs::path& output) {
  return output.parent_path() / fmt::format(".{}.segments", output.filename().string());
}

std::string in_short(const std::string& text) {
  constexpr std::size_t kLongest = 60;
  return text.size() <= kLongest ? fmt::format("\"{}\"", text) : fmt::format("\"{}…\"", text.substr(0, kLongest));
}

// "crf was \"16\", is \"18\"; …": what is said first of that which differs, where one thing brings others.
std::string differences(const Json& was, const std::vector<std::pair<std::string, std::string>>& is) {
  std::vector<std::string> words;
  for (const auto& [name, value] : is) {
    const std::string before = was.contains(name) ? was[name].get<std::string>() : "";
    if (before == value || (name == kCommand && !words.empty())) continue;
    words.push_back(fmt::format("{} was {}, is {}", name, in_short(before), in_short(value)));
  }
  for (const auto& [name, value] : was.items()) {
    const bool gone = std::none_of(is.begin(), is.end(), [&](const auto& pair) { return pair.first == name; });
    if (gone) words.push_back(fmt::format("{} was {}, is \"\"", name, in_short(value.template get<std::string>())));
  }
  return join(words, "; ");
}

}  // namespace

struct VideoSegments::Current {
  PendingFile file;
  EncoderProcess process;
  std::int64_t frames = 0;

  Current(const VideoWriterOptions& options, const EncoderPlan& plan, const fs::path& path, Timeline::Position from)
      : file(path),
        process(options, plan, segment_command(options, plan, Timeline(options.fps).ticks_per_second(), file.path()),
                from, kOrigin_s) {}
};

VideoSegments::VideoSegments(const VideoWriterOptions& options, EncoderPlan plan)
    : options_(options),
      plan_(std::move(plan)),
      folder_(folder_beside(options.output)),
      made_of_(options.segments.made_of) {
  const std::vector<std::string> command =
      segment_command(options_, plan_, Timeline(options_.fps).ticks_per_second(), "");
  made_of_.emplace_back("codec", options_.codec);
  made_of_.emplace_back("quality", reelgrad::join(plan_.quality, " "));
  made_of_.emplace_back("pixel format", plan_.pixel_format);
  made_of_.emplace_back("arguments of --ffmpeg", reelgrad::join(options_.encoder_arguments, " "));
  made_of_.emplace_back("size", fmt::format("{}x{}", options_.width, options_.height));
  made_of_.emplace_back(kCommand, reelgrad::join(std::span(command).subspan(1), " "));
  std::error_code error;
  fs::create_directory(folder_, error);
  if (error) fail(fmt::format("cannot create the folder {}: {}", folder_.string(), error.message()));
  lock_ = std::make_unique<LockFile>(folder_ / "lock", fmt::format("the segments of {}", options_.output.string()));
  read_manifest();
  remove_all_but_finished();
  write_manifest();
}

VideoSegments::~VideoSegments() {
  current_.reset();
  if (lock_ && segments_.empty()) remove_folder();  // nothing to go on from
}

// Locked to the end: who gets the lock next finds a folder of its own.
void VideoSegments::remove_folder() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
  lock_.reset();
}

fs::path VideoSegments::file_of(std::size_t number) const {
  return folder_ / fmt::format("{:06}.nut", number);
}

void VideoSegments::read_manifest() {
  const fs::path path = folder_ / "manifest.json";
  if (options_.segments.fresh || !fs::exists(path)) return;
  std::string changed;
  std::vector<Segment> listed;
  try {
    const Json manifest = Json::parse(read_file(path));
    const bool ours = manifest.at("version") == kManifestVersion;
    changed = ours ? differences(manifest.at("made_of"), made_of_) : "they are of another version of reelgrad";
    for (const Json& entry : manifest.at("segments"))
      listed.push_back({.frames = entry.at("frames"),
                        .bytes = entry.at("bytes"),
                        .end = {entry.at("ticks"), {entry.at("rest_num"), entry.at("rest_den")}}});
  } catch (const Json::exception&) {
    changed = "its manifest cannot be read";
  }
  if (!changed.empty()) {
    fail_usage(fmt::format("{} holds segments of another run: {}; give --fresh to begin anew, or the former options",
                           folder_.string(), changed));
  }
  for (const Segment& segment : listed) {
    std::error_code error;
    if (fs::file_size(file_of(segments_.size()), error) != segment.bytes || error) break;
    segments_.push_back(segment);
    finished_frames_ += segment.frames;
  }
}

void VideoSegments::write_manifest() const {
  Json manifest{{"version", kManifestVersion}, {"made_of", Json::object()}, {"segments", Json::array()}};
  for (const auto& [name, value] : made_of_) manifest["made_of"][name] = value;
  for (const Segment& segment : segments_) {
    manifest["segments"].push_back({{"frames", segment.frames},
                                    {"bytes", segment.bytes},
                                    {"ticks", segment.end.ticks},
                                    {"rest_num", segment.end.rest.num},
                                    {"rest_den", segment.end.rest.den}});
  }
  write_file_atomically(folder_ / "manifest.json", manifest.dump(2, ' ', false, Json::error_handler_t::replace));
}

// What a killed process was at.
void VideoSegments::remove_all_but_finished() const {
  std::vector<fs::path> kept{folder_ / "manifest.json", folder_ / "lock"};
  for (std::size_t i = 0; i < segments_.size(); ++i) kept.push_back(file_of(i));
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, ignored)) {
    if (std::find(kept.begin(), kept.end(), entry.path()) == kept.end()) fs::remove(entry.path(), ignored);
  }
}

void VideoSegments::begin_segment() {
  const Timeline::Position from = segments_.empty() ? Timeline::Position{} : segments_.back().end;
  current_ = std::make_unique<Current>(options_, plan_, file_of(segments_.size()), from);
}

void VideoSegments::finish_segment() {
  current_->process.finish();
  current_->file.commit();
  segments_.push_back({current_->frames, fs::file_size(file_of(segments_.size())), current_->process.position()});
  finished_frames_ += current_->frames;
  current_.reset();
  write_manifest();
}

void VideoSegments::write(const FrameView& frame, Rational duration) {
  if (!current_) begin_segment();
  current_->process.write(frame, duration);
  if (++current_->frames == options_.segments.frames) finish_segment();
}

void VideoSegments::join() const {
  PendingFile file(options_.output);
  PipedProcess process(join_command(options_, plan_, file.path()));
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    if (stop_requested()) throw Error(ErrorKind::interrupted, "interrupted");
    const MappedFile segment(file_of(i));
    write_to_ffmpeg(process, segment.bytes().subspan(i == 0 ? 0 : kNutFileIdBytes), options_.output);
  }
  finish_ffmpeg(process, options_.output);
  file.commit();
}

void VideoSegments::finish() {
  if (current_) finish_segment();
  join();
  remove_folder();
}

}  // namespace reelgrad
