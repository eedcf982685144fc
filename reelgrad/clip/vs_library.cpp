#include "reelgrad/clip/vs_library.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <thread>
#include <vector>

#include "reelgrad/base/dynamic_library.h"
#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/base/lock_file.h"
#include "reelgrad/base/process.h"
#include "reelgrad/base/text.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr const char* kInstall =
    "install it with `python -m pip install vapoursynth vapoursynth-bestsource` (Python 3.12 or newer with a shared "
    "libpython) and activate that environment, or set VSSCRIPT_PATH to its libvsscript.so";

std::string env(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// ---- Where the library may be ----

struct Candidate {
  fs::path library;
  std::string origin;  // for messages
};

// <env>/lib/python3.*/site-packages/vapoursynth/libvsscript.so
std::optional<fs::path> library_of_environment(const fs::path& environment) {
  std::error_code ignored;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(environment / "lib", ignored)) {
    if (!entry.path().filename().string().starts_with("python3")) continue;
    const fs::path library = entry.path() / "site-packages/vapoursynth/libvsscript.so";
    if (fs::exists(library, ignored)) found.push_back(library);
  }
  if (found.empty()) return std::nullopt;
  return *std::max_element(found.begin(), found.end());
}

std::optional<Candidate> beside_program() {
  const fs::path program = executable_path();
  for (fs::path folder = program.parent_path(); folder.has_relative_path(); folder = folder.parent_path()) {
    for (const fs::path& environment : {folder, folder / ".venv"}) {
      if (auto library = library_of_environment(environment)) return Candidate{*library, "beside this program"};
    }
  }
  return std::nullopt;
}

std::vector<Candidate> candidates() {
  // A library that somebody named is used or refused, never silently replaced by another.
  if (const std::string named = env("VSSCRIPT_PATH"); !named.empty()) return {{named, "VSSCRIPT_PATH"}};
  std::vector<Candidate> result;
  if (auto found = beside_program()) result.push_back(*found);
  if (const std::string active = env("VIRTUAL_ENV"); !active.empty()) {
    if (auto library = library_of_environment(active)) result.push_back({*library, "VIRTUAL_ENV"});
  }
  result.push_back({fs::path(REELGRAD_BUILD_VS_DIR) / "libvsscript.so", "the environment of the build"});
  result.push_back({"libvsscript.so", "the system's library path"});
  return result;
}

// The program that a script's first line names: "#!/usr/bin/python3.12".
fs::path interpreter_of(const fs::path& script) {
  std::ifstream file(script);
  std::string line;
  std::error_code ignored;
  if (!std::getline(file, line) || !line.starts_with("#!/")) return {};
  const fs::path program = line.substr(2);
  return fs::exists(program, ignored) ? program : fs::path();
}

fs::path python_of(const fs::path& library) {
  // <env>/lib/pythonX.Y/site-packages/vapoursynth/libvsscript.so
  const fs::path site = library.parent_path().parent_path();
  if (site.filename() == "site-packages") {
    const fs::path programs = site.parent_path().parent_path().parent_path() / "bin";
    for (const char* name : {"python", "python3"}) {
      std::error_code ignored;
      if (fs::exists(programs / name, ignored)) return programs / name;
    }
    // A user's site and a prefix of pip's have no Python of their own, but a script that pip wrote for one.
    if (fs::path python = interpreter_of(programs / "vapoursynth"); !python.empty()) return python;
  }
  if (library.parent_path() == fs::path(REELGRAD_BUILD_VS_DIR)) return REELGRAD_BUILD_PYTHON;
  return find_program("python3");
}

// ---- Its configuration: which Python belongs to it ----

// One line of vapoursynth.toml: "library" = ["python","libpython","time of python's last change"].
struct ConfigEntry {
  std::string library, python, libpython, python_time;
};

std::optional<ConfigEntry> parse_entry(const std::string& line) {
  std::vector<std::string> strings;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '"') continue;
    std::string text;
    for (++i; i < line.size() && line[i] != '"'; ++i) {
      if (line[i] == '\\' && i + 1 < line.size()) ++i;
      text += line[i];
    }
    strings.push_back(std::move(text));
  }
  if (strings.size() != 4) return std::nullopt;
  return ConfigEntry{strings[0], strings[1], strings[2], strings[3]};
}

fs::path config_file() {
  const std::string configured = env("XDG_CONFIG_HOME");
  return (configured.empty() ? home_folder() / ".config" : fs::path(configured)) / "vapoursynth/vapoursynth.toml";
}

bool is_current(const ConfigEntry& entry) {
  std::error_code error;
  if (!fs::exists(entry.libpython, error)) return false;
  const auto time = fs::last_write_time(entry.python, error);
  if (error) return false;
  const auto since_epoch = std::chrono::file_clock::to_sys(time).time_since_epoch();
  return std::to_string(std::chrono::floor<std::chrono::seconds>(since_epoch).count()) == entry.python_time;
}

// The entry of this library. The file's keys write lib64 as lib; an environment reached through a link may be entered
// under its other name.
std::optional<ConfigEntry> find_entry(const fs::path& library) {
  std::ifstream file(config_file());
  std::error_code ignored;
  std::optional<ConfigEntry> found;
  for (std::string line; std::getline(file, line);) {
    const auto entry = parse_entry(line);
    if (!entry || !fs::equivalent(entry->library, library, ignored) || !is_current(*entry)) continue;
    if (entry->library == library) return entry;
    if (!found) found = entry;
  }
  return found;
}

// Waits for other processes that are about to rewrite the file: nobody may read it half-written.
LockFile lock_config() {
  constexpr auto kPatience = 30s;
  const auto start = std::chrono::steady_clock::now();
  while (true) {
    try {
      return LockFile(cache_folder() / "vapoursynth-config.lock", "VapourSynth's configuration");
    } catch (const Error&) {
      if (std::chrono::steady_clock::now() - start > kPatience) throw;
      std::this_thread::sleep_for(50ms);
    }
  }
}

// libvsscript looks itself up in the file above and otherwise runs `vapoursynth` from PATH; when both fail it stays
// unusable for the whole process. So the entry is made before it is asked the first time.
ConfigEntry configured(const fs::path& library) {
  // Without HOME (services, `env -i`) neither libvsscript nor its Python would find the file.
  if (env("HOME").empty() && env("XDG_CONFIG_HOME").empty()) set_environment("HOME", home_folder().string());
  if (auto entry = find_entry(library)) return *entry;
  const LockFile lock = lock_config();
  if (auto entry = find_entry(library)) return *entry;
  const fs::path python = python_of(library);
  if (python.empty()) {
    fail(
        fmt::format("VapourSynth at {} is not configured and no Python was found to do it: run `vapoursynth config` "
                    "in its environment",
                    library.string()));
  }
  const ProcessResult run = run_process({python.string(), "-m", "vapoursynth", "config"}, 60s);
  if (auto entry = find_entry(library)) return *entry;
  fail(
      fmt::format("VapourSynth at {} cannot be configured: `{} -m vapoursynth config` left no entry for it in {}: {}{}",
                  library.string(), python.string(), config_file().string(), run.out, run.err));
}

// ---- Opening it ----

// By its name in the file: it looks itself up under the name by which a process first opens it. Python's extension
// modules need libpython's symbols.
DynamicLibrary open_vsscript(const fs::path& path) {
  const auto entry = find_entry(path);
  return DynamicLibrary(entry ? fs::path(entry->library) : path, DynamicLibrary::Symbols::shared);
}

VapourSynth start(const DynamicLibrary& opened) {
  using GetApi = const VSSCRIPTAPI*(int);
  using GetError = const char*();
  auto* get_api = opened.function<GetApi>("getVSScriptAPI");
  if (!get_api) fail("the libvsscript.so that was found is older than VapourSynth R81; " + std::string(kInstall));
  VapourSynth result;
  result.library = library_of(reinterpret_cast<const void*>(get_api));
  result.python = configured(result.library).python;
  result.script = get_api(VSSCRIPT_API_VERSION);
  if (!result.script) {
    auto* last_error = opened.function<GetError>("getVSScriptAPILastError");
    const char* reason = last_error ? last_error() : nullptr;
    fail(fmt::format("VapourSynth at {} cannot be used: {}; reelgrad needs R81 or newer: {}", result.library.string(),
                     reason ? reason : "its API is too old", kInstall));
  }
  result.api = result.script->getVSAPI(VAPOURSYNTH_API_VERSION);
  if (!result.api) fail(fmt::format("VapourSynth at {} is older than R81; {}", result.library.string(), kInstall));
  return result;
}

VapourSynth find_and_start() {
  std::vector<std::string> tried;
  for (const Candidate& candidate : candidates()) {
    const DynamicLibrary library = open_vsscript(candidate.library);
    if (library) return start(library);
    std::error_code ignored;
    const bool missing = candidate.library.is_absolute() && !fs::exists(candidate.library, ignored);
    tried.push_back(fmt::format("{} ({}{})", candidate.library.string(), candidate.origin,
                                missing ? ": no such file" : ": " + library.error()));
  }
  fail(fmt::format("VapourSynth was not found. Tried: {}. To get it, {}", join(tried, "; "), kInstall));
}

}  // namespace

const VapourSynth& vapoursynth() {
  static const VapourSynth opened = find_and_start();
  return opened;
}

}  // namespace reelgrad
