#pragma once
#include <filesystem>
#include <optional>
#include <string>

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

// What the folder's files say; nullopt when it has no lib/libtorch.so.
std::optional<TorchInstall> read_torch(const std::filesystem::path& dir);

// The version recorded in a torch folder, nullopt when it has none.
std::optional<std::string> torch_version(const std::filesystem::path& dir);

}  // namespace reelgrad
