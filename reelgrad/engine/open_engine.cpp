// Note [Opening the engine]: the command line and the plugin start without torch. The first call that needs it gets
// here. A script may already have imported torch; then the engine joins that one, and only if it is of the version that
// the engine was built for: the dynamic linker would bind to any other without a word, since libraries are found by
// name. libtorch.so is opened by its full path before the engine, so that the libraries it names (cuDNN, the CUDA
// runtime) come from beside it by its RPATH, whatever LD_LIBRARY_PATH holds.
#include <fmt/format.h>

#include <filesystem>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "reelgrad/base/dynamic_library.h"
#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/doctor/torch/torch_install.h"
#include "reelgrad/engine/engine.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBuildVersion = REELGRAD_BUILD_TORCH_VERSION;

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorKind::no_device, message);
}

// The torch folder of a libtorch_cpu.so that this process has already mapped.
std::optional<fs::path> mapped_torch() {
  const std::optional<fs::path> library = mapped_library("libtorch_cpu.so");
  if (!library) return std::nullopt;
  return library->parent_path().parent_path();
}

// The torch to use: the one in this process, else the one that is installed.
fs::path choose_torch() {
  std::string why;
  const std::optional<TorchInstall> installed = find_torch(&why);
  if (const std::optional<fs::path> mapped = mapped_torch()) {
    const std::string version = torch_version(*mapped).value_or("unknown: it has no version.py");
    if (version != kBuildVersion) {
      refuse(
          fmt::format("this process has already loaded another PyTorch, {} (version {}); reelgrad was built for {}{}: "
                      "use one Python environment for both",
                      mapped->string(), version, kBuildVersion,
                      installed ? fmt::format(" and would use {}", installed->dir.string()) : ""));
    }
    return *mapped;
  }
  if (!installed) refuse(fmt::format("PyTorch {} is needed and was not found: {}", kBuildVersion, why));
  if (installed->version != kBuildVersion) {
    refuse(
        fmt::format("{} is PyTorch {}, but reelgrad was built for {}: install that version, or set REELGRAD_TORCH to "
                    "the folder that holds its lib/libtorch.so",
                    installed->dir.string(), installed->version, kBuildVersion));
  }
  return installed->dir;
}

DynamicLibrary open_library(const fs::path& path) {
  DynamicLibrary library(path);
  if (!library) refuse(fmt::format("cannot open {}: {}", path.string(), library.error()));
  return library;
}

void open_torch(const fs::path& torch) {
  if (!fs::exists(torch / "lib/libtorch_cuda.so")) {
    refuse(
        fmt::format("{} is a CPU-only build of PyTorch; reelgrad needs {} with CUDA, which also runs without a card: "
                    "pip install torch=={}",
                    torch.string(), kBuildVersion, kBuildVersion.substr(0, kBuildVersion.find('+'))));
  }
  open_library(torch / "lib/libtorch.so");
}

// Beside this library or in ../lib of this program; of a wheel, beside the plugin in the site-packages that pip used.
fs::path engine_library() {
  const fs::path folder = this_library_path().parent_path();
  std::vector<fs::path> candidates{folder / "libreelgrad.so", folder.parent_path() / "lib/libreelgrad.so"};
  for (const fs::path& packages : site_packages_around(this_library_path())) {
    candidates.push_back(packages / "vapoursynth/plugins/reelgrad/libreelgrad.so");
  }
  for (const fs::path& candidate : candidates) {
    if (fs::exists(candidate)) return candidate;
  }
  refuse(fmt::format("libreelgrad.so was found neither in {} nor in {}: install reelgrad again", folder.string(),
                     (folder.parent_path() / "lib").string()));
}

Engine& load_engine(const log::Sink& sink) {
  open_torch(choose_torch());
  const fs::path path = engine_library();
  auto* get = open_library(path).function<decltype(reelgrad_engine)>("reelgrad_engine");
  Engine* engine = get ? get(kEngineVersion, &sink) : nullptr;
  if (!engine) refuse(fmt::format("{} belongs to another version of reelgrad: install it again", path.string()));
  return *engine;
}

}  // namespace

Engine& open_engine(log::Sink sink) {
  static std::mutex mutex;
  static Engine* engine = nullptr;
  std::lock_guard lock(mutex);
  if (!engine) engine = &load_engine(sink);
  return *engine;
}

}  // namespace reelgrad
