#include "reelgrad/doctor/probes/root_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <utility>

#include "reelgrad/base/descriptor.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxLinks = 40;  // as the kernel

// A FIFO is opened without waiting for its writer, and then refused; nullopt also for what may not be read.
std::optional<std::pair<Descriptor, std::size_t>> open_regular(const fs::path& path) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  struct stat about {};
  if (!file || ::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode)) return std::nullopt;
  return std::pair{std::move(file), static_cast<std::size_t>(about.st_size)};
}

// /proc and /sys say a size of 0 or of a page: reading goes on until the end.
std::string read_some(const Descriptor& file, std::size_t limit) {
  std::string text;
  std::array<char, 1 << 14> block;
  while (text.size() < limit) {
    const ssize_t got = ::read(file.get(), block.data(), std::min(block.size(), limit - text.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(block.data(), static_cast<std::size_t>(got));
  }
  return text;
}

}  // namespace

std::string variable_of(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

RootFiles::RootFiles(fs::path root) : root_(std::move(root)) {}

fs::path RootFiles::host_path(const fs::path& path) const {
  return root_ / path.relative_path();
}

std::optional<fs::path> RootFiles::resolved(const fs::path& path) const {
  std::deque<fs::path> left(path.begin(), path.end());
  fs::path done = "/";
  for (int links = 0; !left.empty();) {
    const fs::path name = left.front();
    left.pop_front();
    if (name.empty() || name == "." || name == "/") continue;
    if (name == "..") {
      done = done.parent_path();
      continue;
    }
    const fs::path next = done / name;
    std::error_code error;
    const fs::file_status status = fs::symlink_status(host_path(next), error);
    if (error || !fs::exists(status)) return std::nullopt;
    if (!fs::is_symlink(status)) {
      done = next;
      continue;
    }
    const fs::path target = fs::read_symlink(host_path(next), error);
    if (error || ++links > kMaxLinks) return std::nullopt;
    if (target.is_absolute()) done = "/";
    left.insert(left.begin(), target.begin(), target.end());
  }
  return done;
}

std::string RootFiles::text(const fs::path& file, std::size_t limit) const {
  const auto path = resolved(file);
  const auto opened = path ? open_regular(host_path(*path)) : std::nullopt;
  return opened ? read_some(opened->first, limit) : "";
}

std::string RootFiles::tail(const fs::path& file, std::size_t limit) const {
  const auto path = resolved(file);
  const auto opened = path ? open_regular(host_path(*path)) : std::nullopt;
  if (!opened) return "";
  const auto& [descriptor, size] = *opened;
  if (size > limit) ::lseek(descriptor.get(), static_cast<off_t>(size - limit), SEEK_SET);
  return read_some(descriptor, limit);
}

std::string RootFiles::first_line(const fs::path& file) const {
  const std::string all = text(file);
  return all.substr(0, all.find('\n'));
}

std::vector<std::string> RootFiles::names(const fs::path& folder) const {
  std::vector<std::string> found;
  const auto path = resolved(folder);
  std::error_code error;
  if (!path || !fs::is_directory(host_path(*path), error)) return found;
  for (fs::directory_iterator entry(host_path(*path), error), end; !error && entry != end; entry.increment(error))
    found.push_back(entry->path().filename().string());
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace reelgrad
