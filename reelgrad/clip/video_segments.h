// A video that is encoded in segments, so that what has been encoded outlives a crash.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "reelgrad/base/files.h"
#include "reelgrad/base/lock_file.h"
#include "reelgrad/clip/encoder_process.h"

namespace reelgrad {

// Note [Segments]: beside out.mkv stands the folder .out.mkv.segments with 000000.nut, 000001.nut, … and manifest.json,
// which says what they are made of and which of them are finished: written last, it never names a file that is not
// whole. A segment is NUT with the encoded video, whose timestamps go on from segment to segment. NUT files put one
// after the other are NUT, so joining them is that, given to an ffmpeg which copies the video and adds what is taken
// along; nothing is rounded. All timestamps come a day late, as encoders begin decoding before the first picture's
// time, which in NUT cannot be negative.
class VideoSegments {
 public:
  // Opens the folder, or makes it. Throws usage, naming what differs, when it was begun with something else (and
  // options.segments.fresh does not clear it), failed when another process is at it.
  VideoSegments(const VideoWriterOptions& options, EncoderPlan plan);
  ~VideoSegments();

  std::int64_t finished_frames() const { return finished_frames_; }
  void write(const FrameView& frame, Rational duration);
  // Joins all of them into options.output and removes the folder. Throws interrupted, with all kept, when a stop is
  // asked for.
  void finish();

 private:
  struct Segment {
    std::int64_t frames = 0;
    std::uintmax_t bytes = 0;
    Timeline::Position end;
  };
  struct Current;

  std::filesystem::path file_of(std::size_t number) const;
  void read_manifest();
  void write_manifest() const;
  void remove_all_but_finished() const;
  void begin_segment();
  void finish_segment();
  void join() const;
  void remove_folder();

  VideoWriterOptions options_;
  EncoderPlan plan_;
  std::filesystem::path folder_;
  std::unique_ptr<LockFile> lock_;
  std::vector<std::pair<std::string, std::string>> made_of_;
  std::vector<Segment> segments_;
  std::int64_t finished_frames_ = 0;
  std::unique_ptr<Current> current_;
};

}  // namespace reelgrad
