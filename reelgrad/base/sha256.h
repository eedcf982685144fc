#pragma once
#include <filesystem>
#include <string>

namespace reelgrad {

// A file's SHA-256 (FIPS 180-4), 64 digits in lower case. Throws failed when it cannot be read.
std::string sha256_of_file(const std::filesystem::path& file);

}  // namespace reelgrad
