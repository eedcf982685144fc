// Files written whole or not at all, and the folders a program needs to know. Errors carry the path, the errno name and
// the bytes that were to be written (ErrorKind::failed).
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "reelgrad/base/signals.h"

namespace reelgrad {

std::string read_file(const std::filesystem::path& path);

// Temporary name beside it, fsync, rename, fsync of the folder.
void write_file_atomically(const std::filesystem::path& path, std::string_view bytes);

// Appended to a file, which is made when missing.
void append_bytes(const std::filesystem::path& path, std::string_view bytes);

// One line appended to a file and flushed; the file is made when missing.
void append_line(const std::filesystem::path& path, std::string_view line);

// A file that appears under its final name only when committed; otherwise the destructor, or a second Ctrl-C, removes
// it. Write to path().
class PendingFile {
 public:
  explicit PendingFile(std::filesystem::path final_path);
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;
  ~PendingFile();
  const std::filesystem::path& path() const { return temporary_; }  // keeps the extension
  void commit();

 private:
  std::filesystem::path final_, temporary_;
  EndsWithUs until_committed_;
  bool committed_ = false;
};

// The same for a folder: fill path(), then commit() syncs its files, renames it and syncs the parent. A folder that
// already has the final name is replaced.
class PendingFolder {
 public:
  explicit PendingFolder(std::filesystem::path final_path);
  PendingFolder(const PendingFolder&) = delete;
  PendingFolder& operator=(const PendingFolder&) = delete;
  ~PendingFolder();
  const std::filesystem::path& path() const { return temporary_; }
  void commit();

  // True for the temporary names of both classes: what a killed process left behind.
  static bool is_leftover(const std::filesystem::path& path);

 private:
  std::filesystem::path final_, temporary_;
  bool committed_ = false;
};

std::string xxh3_128_hex(const std::filesystem::path& file);  // as `xxh128sum` prints it
std::string xxh3_128_hex(std::span<const std::byte> bytes);

std::uintmax_t free_bytes(const std::filesystem::path& folder);  // of the volume that holds it; it need not exist yet

std::filesystem::path home_folder();   // HOME, else the password file's
std::filesystem::path cache_folder();  // $XDG_CACHE_HOME/reelgrad, else ~/.cache/reelgrad; made when missing
std::filesystem::path executable_path();
std::filesystem::path this_library_path();  // of the binary that this code was linked into

std::string errno_name(int error);  // "ENOSPC (No space left on device)"

}  // namespace reelgrad
