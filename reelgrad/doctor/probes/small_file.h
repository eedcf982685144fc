#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"

namespace reelgrad {

// For the records of other people's installations: nullopt when there is no such file, it cannot be read, or it is
// larger than any of them.
inline std::optional<std::string> small_file(const std::filesystem::path& file) {
  constexpr std::uintmax_t kMaxBytes = 1 << 20;
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) return std::nullopt;
  if (const std::uintmax_t bytes = std::filesystem::file_size(file, error); error || bytes > kMaxBytes)
    return std::nullopt;
  try {
    return read_file(file);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace reelgrad
