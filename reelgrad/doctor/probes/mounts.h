#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "reelgrad/doctor/facts.h"
#include "reelgrad/doctor/probes/root_files.h"

namespace reelgrad {

struct Mount {
  std::filesystem::path point;
  std::string type;     // "ext4", "9p", "fuse.sshfs"
  std::string options;  // of the file system: "rw,size=65536k"
};

// From /proc/self/mountinfo, in the order in which they were mounted.
std::vector<Mount> mounts(const RootFiles& files);

// The last one mounted over `path` or the nearest folder above it, by their names alone; nullptr: there is none.
const Mount* mount_over(const std::vector<Mount>& mounts, const std::filesystem::path& path);

// Asks the file system that holds `folder`, which need not exist yet, and follows links. It never returns where a
// server does not answer: for a child process.
void probe_run_folder(const RootFiles& files, const std::filesystem::path& folder, SystemFacts& facts);

// The same from names alone; the free space only of file systems that need no server. Always returns.
void probe_run_folder_by_name(const RootFiles& files, const std::filesystem::path& folder, SystemFacts& facts);

}  // namespace reelgrad
