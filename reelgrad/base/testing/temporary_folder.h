// For tests: a folder of their own.
#pragma once
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace reelgrad::test {

// Made empty under a name that no other test has, also none that runs at the same time; removed with all that is in it.
class TemporaryFolder {
 public:
  // `name` stands in the folder's name, for paths that a test wants to be strange.
  explicit TemporaryFolder(const std::string& name = "test") {
    std::string pattern = (std::filesystem::temp_directory_path() / ("reelgrad-" + name + "-XXXXXX")).string();
    if (!::mkdtemp(pattern.data())) throw std::runtime_error("cannot make the folder " + pattern);
    path_ = pattern;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::filesystem::path& name) const { return path_ / name; }

  // A file with this text; the folders that its name goes through are made. Returns its path.
  std::filesystem::path write(const std::filesystem::path& name, const std::string& text) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
    return file;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace reelgrad::test
