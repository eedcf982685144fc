#include "reelgrad/doctor/probes/mounts.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <sstream>
#include <string_view>

namespace reelgrad {
namespace {

namespace fs = std::filesystem;

bool is_octal(char c) {
  return c >= '0' && c <= '7';
}

// "\040" is a space.
std::string without_octal_escapes(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '\\' && i + 3 < text.size() && is_octal(text[i + 1]) && is_octal(text[i + 2]) &&
                        is_octal(text[i + 3]);
    if (!escape) {
      plain += text[i];
      continue;
    }
    plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
    i += 3;
  }
  return plain;
}

bool holds(const fs::path& folder, const fs::path& path) {
  const auto [in_folder, in_path] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return in_folder == folder.end();
}

// These ask a server, or a program of the user's, which may never answer.
bool may_hang(std::string_view type) {
  static constexpr std::array<std::string_view, 15> kRemote{"9p",   "afs",      "autofs", "beegfs", "ceph",
                                                            "cifs", "gpfs",     "lustre", "ncpfs",  "nfs",
                                                            "nfs4", "orangefs", "smb3",   "smbfs",  "virtiofs"};
  return type.starts_with("fuse") || std::find(kRemote.begin(), kRemote.end(), type) != kRemote.end();
}

std::int64_t free_mb(const RootFiles& files, fs::path folder) {
  struct statvfs about {};
  while (::statvfs(files.host_path(folder).c_str(), &about) != 0) {
    if (!folder.has_relative_path()) return -1;
    folder = folder.parent_path();
  }
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(about.f_bavail) * about.f_frsize >> 20);
}

fs::path absolute_path(const fs::path& folder) {
  std::error_code error;
  const fs::path path = fs::absolute(folder, error).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

// With the links of those folders that exist.
fs::path followed(const RootFiles& files, const fs::path& path) {
  if (const auto there = files.resolved(path)) return *there;
  return path.has_relative_path() ? followed(files, path.parent_path()) / path.filename() : path;
}

}  // namespace

std::vector<Mount> mounts(const RootFiles& files) {
  std::vector<Mount> found;
  std::istringstream lines(files.text("/proc/self/mountinfo"));
  for (std::string line; std::getline(lines, line);) {
    // "25 24 0:23 / /dev/shm rw,relatime shared:4 - tmpfs tmpfs rw,size=65536k", with any number of tags before " - ".
    const std::size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream before(line.substr(0, dash)), after(line.substr(dash + 3));
    std::string id, parent, device, root, point, source;
    Mount mount;
    before >> id >> parent >> device >> root >> point;
    after >> mount.type >> source >> mount.options;
    mount.point = without_octal_escapes(point);
    found.push_back(mount);
  }
  return found;
}

const Mount* mount_over(const std::vector<Mount>& mounts, const fs::path& path) {
  const Mount* best = nullptr;
  for (const Mount& mount : mounts) {
    if (holds(mount.point, path) && (!best || holds(best->point, mount.point))) best = &mount;
  }
  return best;
}

void probe_run_folder(const RootFiles& files, const fs::path& folder, SystemFacts& facts) {
  const fs::path path = followed(files, absolute_path(folder));
  const auto all = mounts(files);
  if (const Mount* mount = mount_over(all, path)) facts.run_file_system = mount->type;
  facts.run_free_mb = free_mb(files, path);
}

void probe_run_folder_by_name(const RootFiles& files, const fs::path& folder, SystemFacts& facts) {
  const fs::path path = absolute_path(folder);
  facts.run_dir = path.string();
  const auto all = mounts(files);
  const Mount* mount = mount_over(all, path);
  if (!mount) return;
  facts.run_file_system = mount->type;
  if (!may_hang(mount->type)) facts.run_free_mb = free_mb(files, path);
}

}  // namespace reelgrad
