#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "reelgrad/clip/video_format.h"
#include "reelgrad/clip/video_writer.h"

namespace reelgrad {

// The source's family at the depth it is written with: 8 bits for 8-bit sources, else 10.
VideoFormat written_format(const VideoFormat& source);

// The fourcc under which ffmpeg reads raw planes of this format from NUT. Throws usage where it has none.
std::string raw_video_fourcc(const VideoFormat& format);

// How ffmpeg names the pixel format that is encoded. RGB becomes 4:4:4 in .mkv; in .mp4 and .mov 4:2:0, which more
// players show, as long as the size is even.
std::string encoded_pixel_format(const VideoFormat& written, const std::string& extension, int width, int height);

// ffmpeg's arguments, `argv[0]` included: NUT from standard input, audio from options.audio_from (its codecs given),
// encoded into `output`.
std::vector<std::string> encoder_command(const VideoWriterOptions& options, const std::string& extension,
                                         std::int64_t ticks_per_second, const std::vector<std::string>& audio,
                                         const std::filesystem::path& output);

}  // namespace reelgrad
