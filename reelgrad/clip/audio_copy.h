#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace reelgrad {

// Names of a file's audio codecs in stream order, as ffmpeg knows them; empty when it has no audio. Throws (failed)
// with ffmpeg's words when the file cannot be read.
std::vector<std::string> audio_codecs(const std::string& ffmpeg, const std::filesystem::path& file);

// ffmpeg's output options that carry these streams of input 1: copied as they are where the container (".mkv", ".mp4",
// ".mov") takes the codec, else encoded to AAC, which is said in the log.
std::vector<std::string> audio_output_options(const std::vector<std::string>& codecs, const std::string& extension);

}  // namespace reelgrad
