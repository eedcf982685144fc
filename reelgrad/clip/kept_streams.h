// What a restored video takes along from the file it was made of: audio, subtitles, attachments, chapters, titles.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace reelgrad {

// The part of a video file that goes along.
struct KeptFrom {
  std::filesystem::path file;  // empty: nothing goes along
  bool audio = true;
  bool whole = true;      // else a part of it, in seconds from its first picture:
  double start_s = 0;     // where the first written frame lies
  double duration_s = 0;  // of all written frames
};

struct FileStream {
  enum class Kind { video, picture, audio, subtitle, attachment, data };
  int index = 0;  // in the file, of all its streams
  Kind kind = Kind::data;
  std::string codec;     // as ffmpeg names it
  std::string language;  // "jpn", or empty
  std::string title;
};

struct FileStreams {
  std::vector<FileStream> streams;
  bool chapters = false;
  double video_delay_s = 0;  // that its first picture comes after its first moment, which may be one of its sound
};

// As ffmpeg lists them. Throws (failed) with its words when the file cannot be read.
FileStreams list_streams(const std::string& ffmpeg, const std::filesystem::path& file);

struct KeptOptions {
  std::vector<std::string> input, output;  // of ffmpeg, for KeptFrom::file as its input 1
  double video_delay_s = 0;                // for the frames, input 0
  std::vector<std::string> notes;          // what is encoded anew and what is left out, for a person
};

// Streams are copied as they are where the container (".mkv", ".mp4", ".mov") takes them, else audio is encoded to AAC,
// text subtitles become the container's own, and what it cannot hold is left out.
KeptOptions kept_options(const KeptFrom& kept, const FileStreams& listed, const std::string& extension);

}  // namespace reelgrad
