// Files of a machine whose root folder is anywhere: a test gives a folder of its own.
#pragma once
#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace reelgrad {

using Environment = std::map<std::string, std::string>;

std::string variable_of(const Environment& environment, const std::string& name);  // empty: not set

// Paths are the machine's own ("/etc/os-release"); links are followed inside its root. What is missing or may not be
// read is empty. Nothing here blocks: what is no regular file is not read.
class RootFiles {
 public:
  explicit RootFiles(std::filesystem::path root);

  bool is_this_machine() const { return root_ == "/"; }
  std::filesystem::path host_path(const std::filesystem::path& path) const;  // for this process's own calls
  std::optional<std::filesystem::path> resolved(const std::filesystem::path& path) const;  // nullopt: not there
  bool exists(const std::filesystem::path& path) const { return resolved(path).has_value(); }

  std::string text(const std::filesystem::path& file, std::size_t limit = 1 << 20) const;  // the first `limit` bytes
  std::string tail(const std::filesystem::path& file, std::size_t limit) const;            // the last ones
  std::string first_line(const std::filesystem::path& file) const;
  std::vector<std::string> names(const std::filesystem::path& folder) const;  // of what is in it, sorted

 private:
  std::filesystem::path root_;
};

}  // namespace reelgrad
