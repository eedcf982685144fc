// A file of the disk as bytes in memory, read from the disk where they are touched.
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>

namespace reelgrad {

// The whole file, mapped privately: what is written to the bytes changes neither the file nor other maps of it. The
// file may be replaced or removed meanwhile, but not be cut off in place.
class MappedFile {
 public:
  // Throws failed when it is missing, no regular file, or cannot be read.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

}  // namespace reelgrad
