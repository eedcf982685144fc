// How ffmpeg is told what to make of our frames: everything that is decided before the first of them.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "reelgrad/clip/kept_streams.h"
#include "reelgrad/clip/video_format.h"
#include "reelgrad/clip/video_writer.h"

namespace reelgrad {

// What frames are to be written in: the source's family at 8 bits for 8-bit sources, else 10; with a pixel format, at
// its depth.
VideoFormat written_format(const VideoFormat& source, const std::string& pixel_format = "");

// The fourcc under which ffmpeg reads raw planes of this format from NUT. Throws usage where it has none.
std::string raw_video_fourcc(const VideoFormat& format);

// How ffmpeg names the pixel format that is encoded where none is asked for. RGB becomes 4:4:4 in .mkv; in .mp4 and
// .mov 4:2:0, which more players show, as long as the size is even.
std::string encoded_pixel_format(const VideoFormat& written, const std::string& extension, int width, int height);

struct EncoderPlan {
  std::string extension;     // ".mkv", ".mp4", ".mov"
  VideoFormat written;       // of the frames that ffmpeg is fed
  std::string pixel_format;  // of the encoded video; empty: the encoder's choice, which has not what we would choose
  std::vector<std::string> quality;  // options; none where the encoder has no -crf or the like
  std::string timing_option;         // of this ffmpeg
  std::string last_duration_filter;  // a bitstream filter of ffmpeg; empty: the last frame lasts 1 / fps
  KeptOptions kept;

  bool keeps_rgb() const;  // the encoded video is RGB
};

// Asks ffmpeg and decides. Throws usage for what this encoder does not take, failed when ffmpeg or the encoder is
// missing, or when a file with these options cannot be begun, with ffmpeg's words.
EncoderPlan plan_encoder(const VideoWriterOptions& options);

// ffmpeg's arguments, `argv[0]` included. Its input is NUT on standard input.
// All of a file, from raw frames:
std::vector<std::string> encoder_command(const VideoWriterOptions& options, const EncoderPlan& plan,
                                         std::int64_t ticks_per_second, const std::filesystem::path& output);
// A part, from raw frames: NUT with the encoded video alone and the timestamps as they come.
std::vector<std::string> segment_command(const VideoWriterOptions& options, const EncoderPlan& plan,
                                         std::int64_t ticks_per_second, const std::filesystem::path& output);
// All of a file, from its parts, one after the other.
std::vector<std::string> join_command(const VideoWriterOptions& options, const EncoderPlan& plan,
                                      const std::filesystem::path& output);

}  // namespace reelgrad
