#include "reelgrad/doctor/torch/python_install.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/base/process.h"
#include "reelgrad/base/text.h"
#include "reelgrad/doctor/card/child_words.h"
#include "reelgrad/doctor/probes/small_file.h"
#include "reelgrad/doctor/torch/torch_install.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kLayoutLimit{5};
constexpr std::size_t kMaxPathLines = 1000;

// What a Python imports from, beside its own modules.
struct PythonLayout {
  std::string version;
  std::vector<fs::path> folders;  // in the order in which they are searched; some may not exist
};

bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::string lower_trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r"), end = text.find_last_not_of(" \t\r");
  if (begin == std::string_view::npos) return "";
  std::string trimmed(text.substr(begin, end - begin + 1));
  std::transform(trimmed.begin(), trimmed.end(), trimmed.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return trimmed;
}

// The leading `parts` numbers: ("3.11.4.final.0", 3) -> "3.11.4".
std::string leading_numbers(std::string_view version, int parts) {
  std::size_t end = 0;
  while (end < version.size()) {
    const char c = version[end];
    if (c == '.' ? --parts == 0 : c < '0' || c > '9') break;
    ++end;
  }
  while (end > 0 && version[end - 1] == '.') --end;
  return std::string(version.substr(0, end));
}

std::string minor_version(std::string_view version) {
  return leading_numbers(version, 2);
}

// The folder of packages below lib/ of a prefix; "3.13" also finds python3.13t, the build without a global lock.
fs::path packages_of(const fs::path& prefix, const std::string& minor) {
  for (const char* suffix : {"", "t"}) {
    const fs::path folder = prefix / "lib" / fmt::format("python{}{}", minor, suffix) / "site-packages";
    if (is_folder(folder)) return folder;
  }
  return {};
}

// The Python versions that a prefix has folders of packages for.
std::vector<std::string> versions_below(const fs::path& prefix) {
  std::vector<std::string> versions;
  std::error_code error;
  for (fs::directory_iterator entry(prefix / "lib", error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with("python3.") && is_folder(entry->path() / "site-packages"))
      versions.push_back(minor_version(std::string_view(name).substr(6)));
  }
  return versions;
}

std::vector<fs::path> python_path() {
  std::vector<fs::path> folders;
  const char* variable = std::getenv("PYTHONPATH");
  std::istringstream stream(variable ? variable : "");
  for (std::string folder; std::getline(stream, folder, ':');) {
    if (!folder.empty()) folders.emplace_back(folder);
  }
  return folders;
}

std::vector<fs::path> user_packages(const std::string& version) {
  if (const char* off = std::getenv("PYTHONNOUSERSITE"); off && *off) return {};
  const char* base = std::getenv("PYTHONUSERBASE");
  const fs::path folder = base && *base ? fs::path(base) : home_folder() / ".local";
  return {folder / "lib" / ("python" + minor_version(version)) / "site-packages"};
}

void append(std::vector<fs::path>& to, const std::vector<fs::path>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

struct EnvironmentConfig {
  fs::path prefix;
  std::string version;  // of the Python that it was made with
  bool system_packages = false;
};

// pyvenv.cfg is looked for as Python does: beside the interpreter or one folder up, without following its link.
std::optional<EnvironmentConfig> environment_config(const fs::path& program) {
  for (const fs::path& folder : {program.parent_path(), program.parent_path().parent_path()}) {
    const auto text = small_file(folder / "pyvenv.cfg");
    if (!text) continue;
    EnvironmentConfig config{.prefix = folder};
    std::istringstream lines(*text);
    for (std::string line; std::getline(lines, line);) {
      const std::size_t equals = line.find('=');
      if (equals == std::string::npos) continue;
      const std::string key = lower_trimmed(line.substr(0, equals)), value = lower_trimmed(line.substr(equals + 1));
      if (key == "version" || key == "version_info") config.version = leading_numbers(value, 3);
      if (key == "include-system-site-packages") config.system_packages = value == "true";
    }
    return config;
  }
  return std::nullopt;
}

// "3.12" when the interpreter's link ends at a file named python3.12.
std::string minor_of_file(const fs::path& program) {
  std::error_code error;
  const std::string name = fs::canonical(program, error).filename().string();
  return name.starts_with("python3.") ? minor_version(std::string_view(name).substr(6)) : "";
}

// From files where they tell, else by asking. Throws Error in words.
PythonLayout layout_of(const fs::path& program);

PythonLayout environment_layout(const fs::path& program, const EnvironmentConfig& config) {
  PythonLayout layout{.version = config.version, .folders = python_path()};
  const std::string minor = minor_of_file(program);
  // An environment stays as it is when the Python that it links to is replaced by a newer one.
  if (!minor.empty() && minor != minor_version(config.version)) layout.version = minor;
  const std::vector<std::string> present = versions_below(config.prefix);
  if (layout.version.empty() && present.size() == 1) layout.version = present.front();
  const fs::path packages = packages_of(config.prefix, minor_version(layout.version));
  if (packages.empty()) {
    fail(fmt::format("{} has no packages of Python {}{}: make the environment again", config.prefix.string(),
                     layout.version,
                     present.empty() ? "" : fmt::format(", only of {}, which it was made for", join(present, ", "))));
  }
  layout.folders.push_back(packages);
  if (!config.system_packages) return layout;
  std::error_code error;
  if (const fs::path base = fs::canonical(program, error); !error && base != program)
    append(layout.folders, layout_of(base).folders);
  return layout;
}

// By the records of the conda environment that the interpreter belongs to.
std::optional<PythonLayout> conda_layout(const fs::path& program) {
  std::error_code error;
  const fs::path prefix = fs::canonical(program, error).parent_path().parent_path();
  for (fs::directory_iterator entry(prefix / "conda-meta", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with("python-3.")) continue;
    PythonLayout layout{.version = leading_numbers(std::string_view(name).substr(7), 3), .folders = python_path()};
    const fs::path packages = packages_of(prefix, minor_version(layout.version));
    if (packages.empty()) continue;
    append(layout.folders, user_packages(layout.version));
    layout.folders.push_back(packages);
    return layout;
  }
  return std::nullopt;
}

// -S: the site module would run what the .pth files of the packages say.
constexpr const char* kLayoutQuestion =
    "import sys, site; print('.'.join(str(number) for number in sys.version_info[:3])); print(sys.executable); "
    "print(*site.getsitepackages(), sep='\\n')";

PythonLayout asked_layout(const fs::path& program) {
  const ProcessResult result = run_process({program.string(), "-I", "-S", "-c", kLayoutQuestion}, kLayoutLimit);
  if (result.timed_out) fail(fmt::format("{} did not answer within {} s", program.string(), kLayoutLimit.count()));
  std::istringstream lines(result.out);
  PythonLayout layout;
  std::string executable;
  const bool answered = std::getline(lines, layout.version) && std::getline(lines, executable);
  if (result.exit_code != 0 || !answered || minor_version(layout.version).find('.') == std::string::npos) {
    const std::string words = last_line(result.err);
    fail(fmt::format("{} does not answer as a Python 3 does{}{}", program.string(), words.empty() ? "" : ": ", words));
  }
  // A shim: pyenv's and others' are scripts that start the real one.
  if (!executable.empty() && executable != program) {
    if (const auto config = environment_config(executable)) return environment_layout(executable, *config);
    if (const auto conda = conda_layout(executable)) return *conda;
  }
  layout.folders = python_path();
  append(layout.folders, user_packages(layout.version));
  for (std::string folder; std::getline(lines, folder);) layout.folders.emplace_back(folder);
  return layout;
}

PythonLayout layout_of(const fs::path& program) {
  if (const auto config = environment_config(program)) return environment_layout(program, *config);
  if (const auto conda = conda_layout(program)) return *conda;
  return asked_layout(program);
}

// The folders that the .pth files of a folder of packages add to it.
std::vector<fs::path> added_folders(const fs::path& packages) {
  std::vector<fs::path> files, folders;
  std::error_code error;
  for (fs::directory_iterator entry(packages, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().extension() == ".pth") files.push_back(entry->path());
  }
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) {
    std::istringstream lines(small_file(file).value_or(""));
    for (std::string line; std::getline(lines, line) && folders.size() < kMaxPathLines;) {
      line.erase(line.find_last_not_of(" \t\r") + 1);
      const bool is_code = line.starts_with("import ") || line.starts_with("import\t");
      if (line.empty() || line.starts_with('#') || is_code) continue;
      if (is_folder(packages / line)) folders.push_back(packages / line);
    }
  }
  return folders;
}

// Where an editable install of torch leads, as setuptools writes it: MAPPING = {'torch': '/src/pytorch/torch', …}.
fs::path editable_torch(const fs::path& packages) {
  std::error_code error;
  for (fs::directory_iterator entry(packages, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with("__editable___torch_") || !name.ends_with("_finder.py")) continue;
    const std::string source = small_file(entry->path()).value_or("");
    constexpr std::string_view kKey = "'torch': '";
    const std::size_t begin = source.find(kKey, std::min(source.find("MAPPING"), source.size()));
    if (begin == std::string::npos) continue;
    const std::size_t start = begin + kKey.size();
    return source.substr(start, source.find('\'', start) - start);
  }
  return {};
}

// The torch folder that `import torch` would take; empty: none.
fs::path imported_torch(const std::vector<fs::path>& folders) {
  for (const fs::path& folder : folders) {
    std::vector<fs::path> candidates{folder};
    append(candidates, added_folders(folder));
    for (const fs::path& candidate : candidates) {
      // What an uninstall leaves behind has neither.
      if (is_there(candidate / "torch/__init__.py") || torch_library_folder(candidate / "torch"))
        return candidate / "torch";
    }
  }
  // Finders of editable packages come after all folders.
  for (const fs::path& folder : folders) {
    if (const fs::path torch = editable_torch(folder); !torch.empty()) return torch;
  }
  return {};
}

std::string existing(const std::vector<fs::path>& folders) {
  std::vector<std::string> names;
  for (const fs::path& folder : folders) {
    if (is_folder(folder)) names.push_back(folder.string());
  }
  return names.empty() ? "the folders of this Python: none exists" : join(names, ", ");
}

// The interpreter that was meant. Throws Error in words when there is none that can be started.
fs::path interpreter(const fs::path& named) {
  std::error_code error;
  fs::path program = named;
  if (!named.has_parent_path() && !is_there(named)) {
    program = find_program(named.string());
    if (program.empty()) fail(fmt::format("there is no program {} on PATH", named.string()));
  }
  program = fs::absolute(program, error).lexically_normal();
  if (is_folder(program)) {
    const fs::path inside = program / "bin/python";
    if (fs::is_symlink(fs::symlink_status(inside, error)) || is_there(inside)) {
      program = inside;
    } else {
      fail(fmt::format("{} is a folder without bin/python", program.string()));
    }
  }
  const fs::file_status link = fs::symlink_status(program, error);
  if (!fs::exists(link)) fail(fmt::format("there is no file {}", program.string()));
  if (fs::is_symlink(link) && !is_there(program)) {
    fail(fmt::format(
        "{} is a link to {}, which is not there: the Python that this environment was made with was removed "
        "or moved; make the environment again",
        program.string(), fs::read_symlink(program, error).string()));
  }
  if (!fs::is_regular_file(program, error)) fail(fmt::format("{} is no program", program.string()));
  if (find_program(program.string()).empty()) fail(fmt::format("{} is not executable", program.string()));
  return program;
}

void fill_torch(PythonFacts& facts, const PythonLayout& layout) {
  const fs::path torch = imported_torch(layout.folders);
  if (torch.empty()) fail(fmt::format("there is no torch in {}", existing(layout.folders)));
  facts.torch = torch_facts_of(torch);
  if (!facts.torch.dir.empty()) return;
  const std::string version = torch_version(torch).value_or("");
  fail(fmt::format("{}{}{}: the installation is damaged, or a source tree that was not built", facts.torch.error,
                   version.empty() ? "" : ", though it is of version ", version));
}

// One line of JSON after each step, so that what was answered before a crash is known. Python puts the working
// directory, which is ours and not the user's, first on its path.
constexpr const char* kTorchQuestion = R"python(import json, sys
sys.path[:] = [folder for folder in sys.path if folder]
def say(**answer):
    print("\nreelgrad: " + json.dumps(answer), flush=True)
say(step="import torch")
try:
    import torch
    say(step="torch.cuda.is_available()")
    say(is_available=bool(torch.cuda.is_available()), step="torch.cuda.device_count()")
    say(device_count=int(torch.cuda.device_count()), step="torch.cuda.get_device_name(0)")
    torch.cuda.get_device_name(0)
except BaseException as error:
    say(error=type(error).__name__ + ": " + str(error))
say(step="")
)python";

struct TorchAnswers {
  std::string step = "starting";  // the one that was being done at the end; empty: all were
  std::string error;
};

TorchAnswers read_answers(const std::string& out, PythonFacts& facts) {
  constexpr std::string_view kMark = "reelgrad: ";
  TorchAnswers answers;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(kMark)) continue;
    const auto answer = nlohmann::json::parse(line.substr(kMark.size()), nullptr, /*allow_exceptions=*/false);
    if (!answer.is_object()) continue;
    const auto text = [&](const char* key, std::string& to) {
      if (answer.contains(key) && answer[key].is_string()) to = answer[key].get<std::string>();
    };
    text("step", answers.step);
    text("error", answers.error);
    if (answer.contains("is_available") && answer["is_available"].is_boolean())
      facts.is_available = answer["is_available"].get<bool>();
    if (answer.contains("device_count") && answer["device_count"].is_number_integer())
      facts.device_count = answer["device_count"].get<int>();
  }
  return answers;
}

}  // namespace

PythonFacts read_python(const fs::path& python) {
  PythonFacts facts{.path = python.string()};
  try {
    const fs::path program = interpreter(python);
    facts.path = program.string();
    const PythonLayout layout = layout_of(program);
    facts.version = layout.version;
    fill_torch(facts, layout);
  } catch (const std::exception& error) {
    facts.error = error.what();
  }
  return facts;
}

void ask_python(PythonFacts& facts, std::chrono::milliseconds limit) {
  if (facts.path.empty()) return;
  ProcessResult result;
  try {
    // -B: leaves no compiled files in somebody else's packages.
    result = run_process({facts.path, "-B", "-c", kTorchQuestion}, limit);
  } catch (const Error& error) {
    facts.imported = Outcome::failed;
    facts.import_error = error.what();
    return;
  }
  const TorchAnswers answers = read_answers(result.out, facts);
  const std::string at = answers.step.empty() ? "" : fmt::format(" at {}", answers.step);
  facts.import_error = answers.error;
  if (result.timed_out) {
    facts.imported = Outcome::timed_out;
    facts.import_error = fmt::format("no answer within {:g} s{}", static_cast<double>(limit.count()) / 1000, at);
  } else if (result.exit_code > 128) {
    facts.imported = Outcome::crashed;
    facts.import_error = signal_text(result.exit_code - 128) + at;
  } else if (facts.is_available && facts.device_count >= 0) {
    facts.imported = Outcome::ok;
  } else {
    facts.imported = Outcome::failed;
    if (facts.import_error.empty())
      facts.import_error = fmt::format("exit status {}: {}", result.exit_code, last_line(result.err));
  }
}

}  // namespace reelgrad
