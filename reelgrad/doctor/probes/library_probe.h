#pragma once
#include <optional>
#include <string>
#include <vector>

#include "reelgrad/doctor/facts.h"
#include "reelgrad/doctor/probes/root_files.h"

namespace reelgrad {

// libcuda, libcudart, libtorch, cuDNN and NVML on the dynamic linker's path, in the order of its search, each file once
// a name: LD_LIBRARY_PATH, the cache that ldconfig wrote (its configuration where there is none), the default folders;
// last, with `from` "wsl", those of WSL's folder that are on no path.
std::vector<LibraryFacts> probe_libraries(const RootFiles& files, const Environment& environment);

// The file that this name opens, links followed.
std::optional<std::filesystem::path> library_on_path(const RootFiles& files, const Environment& environment,
                                                     const std::string& name);

struct CachedLibrary {
  std::string name;  // "libcuda.so.1"
  std::filesystem::path path;
};

// What an ld.so.cache says of this machine's 64-bit libraries; empty when it is none.
std::vector<CachedLibrary> parse_linker_cache(const std::string& bytes);

}  // namespace reelgrad
