#pragma once
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string>

namespace reelgrad {

// ".mp4" of "A.MP4".
inline std::string lower_extension(const std::filesystem::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return extension;
}

}  // namespace reelgrad
