#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "reelgrad/doctor/facts.h"

namespace reelgrad {

// A PyTorch on disk, known by its files alone: nothing of it is opened.
struct TorchInstall {
  std::filesystem::path dir;  // holds lib/libtorch.so
  std::string version;        // "2.11.0+cu130", empty: it does not say
  std::string cuda;           // "13.0", empty: a CPU-only build
};

// REELGRAD_TORCH when set (and no other when that is wrong), the site-packages around this binary, or the environment
// that reelgrad was built with. When none is there, `why` says where it was looked for.
std::optional<TorchInstall> find_torch(std::string* why = nullptr);

// The site-packages that this binary is installed in, and those of the environment whose bin/ holds it; they need not
// exist.
std::vector<std::filesystem::path> site_packages_around(const std::filesystem::path& binary);

// What the folder's files say; nullopt when it has no lib/libtorch.so.
std::optional<TorchInstall> read_torch(const std::filesystem::path& dir);

// The version recorded in a torch folder, nullopt when it has none.
std::optional<std::string> torch_version(const std::filesystem::path& dir);

// All that the folder's files and those of the packages beside it say, in well under a second: nothing of it is opened
// as a library. `outcome` and `cuda_mapped` stay unknown. `error` tells of a library that is missing, damaged or for
// another machine, and of a build for another maker's cards; without lib/libtorch.so `dir` is empty. Never throws.
TorchFacts torch_facts_of(const std::filesystem::path& dir);

// Opens lib/libtorch.so as the engine does, which may crash, hang, and takes hundreds of megabytes: for a child
// process. Fills `dir`, `outcome`, `error` and `cuda_mapped`, nothing else.
TorchFacts probe_torch_opening(const std::filesystem::path& dir);

// Where the libraries of a torch folder are: its lib/, or the environment's, to which conda-forge moves them.
std::optional<std::filesystem::path> torch_library_folder(const std::filesystem::path& dir);

}  // namespace reelgrad
