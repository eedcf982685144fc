// What this process may use of the machine.
#include <sys/statvfs.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>
#include <string_view>

#include "reelgrad/doctor/probes/mounts.h"
#include "reelgrad/doctor/probes/system_probe.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kNoLimitBytes = std::int64_t{1} << 60;  // version 1 writes a number near 2^63 for "none"

std::optional<std::int64_t> leading_number(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return std::nullopt;
  std::int64_t number = 0;
  const auto [stop, error] = std::from_chars(text.data() + begin, text.data() + text.size(), number);
  if (error != std::errc{}) return std::nullopt;
  return number;
}

// The least of a group's limit and those of the groups around it.
std::int64_t group_limit(const RootFiles& files, const fs::path& hierarchy, fs::path group, const char* file) {
  std::int64_t least = kNoLimitBytes;
  for (;; group = group.parent_path()) {
    const auto bytes = leading_number(files.first_line(hierarchy / group.relative_path() / file));
    if (bytes && *bytes >= 0) least = std::min(least, *bytes);
    if (!group.has_relative_path()) return least;
  }
}

std::int64_t memory_limit_mb(const RootFiles& files) {
  std::int64_t least = kNoLimitBytes;
  std::istringstream lines(files.text("/proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    // "4:memory,hugetlb:/docker/12ab" in version 1, "0::/user.slice" in version 2.
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const fs::path group = line.substr(second + 1);
    if (controllers == ",,") least = std::min(least, group_limit(files, "/sys/fs/cgroup", group, "memory.max"));
    if (controllers.find(",memory,") != std::string::npos)
      least = std::min(least, group_limit(files, "/sys/fs/cgroup/memory", group, "memory.limit_in_bytes"));
  }
  return least == kNoLimitBytes ? -1 : least >> 20;
}

// "Max locked memory         8388608              8388608              bytes": the first number holds. -1: unlimited.
std::int64_t user_limit(const std::string& limits, const std::string& name) {
  std::istringstream lines(limits);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(name)) return leading_number(line.substr(name.size())).value_or(-1);
  }
  return -1;
}

// "rw,size=65536k", in units of k, m or g; nullopt: the file system's own half of the memory.
std::optional<std::int64_t> size_option_mb(const std::string& options) {
  const std::size_t found = ("," + options).find(",size=");
  if (found == std::string::npos) return std::nullopt;
  const std::string value = options.substr(found + std::string_view("size=").size());
  const auto number = leading_number(value);
  if (!number) return std::nullopt;
  const std::size_t unit = value.find_first_not_of("0123456789");
  if (unit == std::string::npos || value[unit] == ',') return *number >> 20;
  if (value[unit] == 'k' || value[unit] == 'K') return *number >> 10;
  if (value[unit] == 'm' || value[unit] == 'M') return *number;
  if (value[unit] == 'g' || value[unit] == 'G') return *number << 10;
  return std::nullopt;
}

std::int64_t shared_memory_mb(const RootFiles& files) {
  const auto all = mounts(files);
  const Mount* mount = mount_over(all, "/dev/shm");
  if (mount && mount->point == "/dev/shm") {
    if (const auto size = size_option_mb(mount->options)) return *size;
  }
  struct statvfs about {};
  if (!files.is_this_machine() || ::statvfs("/dev/shm", &about) != 0) return -1;
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(about.f_blocks) * about.f_frsize >> 20);
}

// Looking opens one more.
std::int64_t open_files(const RootFiles& files) {
  const auto found = static_cast<std::int64_t>(files.names("/proc/self/fd").size());
  if (found == 0) return -1;
  return files.is_this_machine() ? found - 1 : found;
}

}  // namespace

void probe_limits(const RootFiles& files, SystemFacts& facts) {
  facts.memory_limit_mb = memory_limit_mb(files);
  const std::string limits = files.text("/proc/self/limits");
  const std::int64_t locked = user_limit(limits, "Max locked memory");
  facts.memlock_kb = locked < 0 ? -1 : locked >> 10;
  facts.open_files = user_limit(limits, "Max open files");
  facts.open_files_used = open_files(files);
  facts.shm_mb = shared_memory_mb(files);
}

}  // namespace reelgrad
