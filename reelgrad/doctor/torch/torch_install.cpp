#include "reelgrad/doctor/torch/torch_install.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <vector>

#include "reelgrad/base/dynamic_library.h"
#include "reelgrad/base/files.h"
#include "reelgrad/doctor/probes/small_file.h"
#include "reelgrad/doctor/torch/elf_file.h"
#include "reelgrad/doctor/torch/fat_binary.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;

bool is_torch(const fs::path& dir) {
  std::error_code error;
  return fs::exists(dir / "lib/libtorch.so", error);
}

// The string that version.py gives to `name`: `cuda: Optional[str] = '13.0'`. None and a missing line are nullopt.
std::optional<std::string> python_string(const std::string& source, std::string_view name) {
  std::istringstream lines(source);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name)) continue;
    const char after = line.size() > name.size() ? line[name.size()] : '\0';
    if (after != ' ' && after != ':' && after != '=') continue;
    const std::size_t open = line.find_first_of("'\"", line.find('='));
    if (open == std::string::npos) return std::nullopt;
    return line.substr(open + 1, line.find(line[open], open + 1) - open - 1);
  }
  return std::nullopt;
}

// "2.11.0+cu130" -> "13.0"
std::string cuda_of_version(std::string_view version) {
  const std::size_t mark = version.find("+cu");
  if (mark == std::string_view::npos) return "";
  const std::string_view rest = version.substr(mark + 3);
  const std::string_view digits = rest.substr(0, rest.find_first_not_of("0123456789"));
  if (digits.size() < 3) return "";
  return fmt::format("{}.{}", digits.substr(0, digits.size() - 1), digits.back());
}

std::optional<fs::path> find_torch_folder(std::string& why) {
  if (const char* named = std::getenv("REELGRAD_TORCH"); named && *named) {
    if (is_torch(named)) return fs::absolute(named);
    why = fmt::format("REELGRAD_TORCH={} has no lib/libtorch.so", named);
    return std::nullopt;
  }
  std::vector<fs::path> candidates = site_packages_around(this_library_path());
  for (fs::path& candidate : candidates) candidate /= "torch";
  candidates.emplace_back(REELGRAD_BUILD_TORCH_DIR);
  why = "no lib/libtorch.so in";
  for (const fs::path& candidate : candidates) {
    if (is_torch(candidate)) return candidate;
    why += fmt::format("{} {}", &candidate == &candidates.front() ? "" : ",", candidate.string());
  }
  return std::nullopt;
}

// Those of a torch folder and of the packages that it was installed with.
struct TorchFolders {
  fs::path libraries;
  fs::path packages;  // site-packages
  fs::path prefix;    // of a conda environment, else empty
};

// The conda environment that a folder in its site-packages belongs to; empty: it is in none.
fs::path conda_prefix(const fs::path& dir) {
  const fs::path prefix = dir.parent_path().parent_path().parent_path().parent_path();
  std::error_code error;
  return fs::is_directory(prefix / "conda-meta", error) ? prefix : fs::path();
}

// "9.19.0" from lines such as `#define CUDNN_MAJOR 9`; empty when one of the three is missing.
std::string version_of_header(const fs::path& header, const std::array<std::string_view, 3>& names) {
  const auto source = small_file(header);
  if (!source) return "";
  std::array<std::string, 3> numbers;
  std::istringstream lines(*source);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string define, name, number;
    if (!(words >> define >> name >> number) || define != "#define") continue;
    const auto* found = std::find(names.begin(), names.end(), name);
    if (found != names.end()) numbers[static_cast<std::size_t>(found - names.begin())] = number;
  }
  const bool complete = std::none_of(numbers.begin(), numbers.end(), [](const auto& text) { return text.empty(); });
  return complete ? fmt::format("{}.{}.{}", numbers[0], numbers[1], numbers[2]) : "";
}

// The leading numbers of "9_19_0_56_" or "2.28.9+cuda13.0", three at most, with points: "9.19.0".
std::string three_numbers(std::string_view text) {
  std::string version;
  int numbers = 0;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && c != '.' && c != '_') break;
    if (!digit && ++numbers == 3) break;
    version += digit ? c : '.';
  }
  if (version.ends_with('.')) version.pop_back();
  return version;
}

// Of a package that pip has recorded, by the name of its folder: "nvidia_cudnn_cu13-9.19.0.56.dist-info".
std::string version_of_package(const fs::path& packages, std::string_view name) {
  std::error_code error;
  for (fs::directory_iterator entry(packages, error), end; !error && entry != end; entry.increment(error)) {
    const std::string folder = entry->path().filename().string();
    const std::size_t dash = folder.find('-');
    if (folder.starts_with(name) && folder.ends_with(".dist-info") && dash != std::string::npos)
      return three_numbers(std::string_view(folder).substr(dash + 1));
  }
  return "";
}

// "NCCL version 2.28.9+cuda13.0" stands in the library: what follows `mark`, when that is a number.
std::string version_in_library(const fs::path& library, std::string_view mark) {
  ElfFile file(library);
  const auto section = file ? file.section(".rodata") : std::nullopt;
  if (!section) return "";
  const auto text = file.text_from(*section, mark, [&](std::string_view found) {
    return three_numbers(found.substr(mark.size())).find('.') != std::string::npos;
  });
  return text ? three_numbers(std::string_view(*text).substr(mark.size())) : "";
}

// By the file that a library's short name links to: "libcudnn.so.9" -> "libcudnn.so.9.19.0".
std::string version_of_link(const fs::path& library) {
  std::error_code error;
  const std::string name = fs::canonical(library, error).filename().string();
  const std::size_t mark = name.find(".so.");
  const std::string version = mark == std::string::npos ? "" : three_numbers(std::string_view(name).substr(mark + 4));
  return std::count(version.begin(), version.end(), '.') == 2 ? version : "";
}

std::string first_of(std::initializer_list<std::string> texts) {
  for (const std::string& text : texts) {
    if (!text.empty()) return text;
  }
  return "";
}

// In the order in which the library would be found: torch's own path leads to the packages of NVIDIA first.
std::string cudnn_version(const TorchFolders& torch) {
  constexpr std::array<std::string_view, 3> kNames{"CUDNN_MAJOR", "CUDNN_MINOR", "CUDNN_PATCHLEVEL"};
  const fs::path package = torch.packages / "nvidia/cudnn";
  std::error_code error;
  if (fs::is_directory(package / "lib", error)) {
    const std::string version = version_of_header(package / "include/cudnn_version.h", kNames);
    return version.empty() ? version_of_package(torch.packages, "nvidia_cudnn_cu") : version;
  }
  for (const int major : {9, 8}) {
    const fs::path library = torch.libraries / fmt::format("libcudnn.so.{}", major);
    if (!fs::exists(library, error)) continue;
    const fs::path part = fmt::format("{}.so.{}", major == 9 ? "libcudnn_graph" : "libcudnn_ops_infer", major);
    return first_of({version_of_link(library), version_in_library(torch.libraries / part, "cudnn_version_")});
  }
  return torch.prefix.empty() ? "" : version_of_header(torch.prefix / "include/cudnn_version.h", kNames);
}

std::string nccl_version(const TorchFolders& torch) {
  constexpr std::array<std::string_view, 3> kNames{"NCCL_MAJOR", "NCCL_MINOR", "NCCL_PATCH"};
  constexpr std::string_view kMark = "NCCL version ";
  const fs::path package = torch.packages / "nvidia/nccl";
  std::error_code error;
  if (fs::is_directory(package / "lib", error)) {
    const std::string version = version_of_header(package / "include/nccl.h", kNames);
    return version.empty() ? version_of_package(torch.packages, "nvidia_nccl_cu") : version;
  }
  for (const fs::path& library : {torch.libraries / "libnccl.so.2", torch.prefix / "lib/libnccl.so.2"}) {
    if (library.is_absolute() && fs::exists(library, error))
      return first_of({version_of_link(library), version_in_library(library, kMark)});
  }
  // Linked into torch itself, as in the archives from pytorch.org.
  return version_in_library(torch.libraries / "libtorch_cuda.so", kMark);
}

std::vector<std::string> architectures_of(const fs::path& libraries) {
  // Some releases had the kernels in a library of their own.
  for (const char* name : {"libtorch_cuda.so", "libtorch_cuda_cu.so"}) {
    ElfFile library(libraries / name);
    if (!library) continue;
    if (auto found = fat_binary_architectures(library)) return *found;
  }
  for (const char* name : {"libtorch_python.so", "libtorch_cuda.so", "libc10_cuda.so"}) {
    ElfFile library(libraries / name);
    if (!library) continue;
    if (auto found = architecture_flags(library); !found.empty()) return found;
  }
  return {};
}

// The newest versions of the C and C++ libraries that one of torch's asks for.
void read_needs(const fs::path& libraries, TorchFacts& facts) {
  std::vector<std::string> needs;
  for (const char* name : {"libc10.so", "libc10_cuda.so", "libtorch.so", "libtorch_cpu.so", "libtorch_cuda.so",
                           "libtorch_cuda_linalg.so", "libtorch_python.so"}) {
    const ElfFile library(libraries / name);
    needs.insert(needs.end(), library.version_needs().begin(), library.version_needs().end());
  }
  facts.glibc_needed = newest_version(needs, "GLIBC_");
  facts.libstdcxx_needed = newest_version(needs, "GLIBCXX_");
}

// The first of torch's libraries that cannot be opened for a reason that its file shows, in words.
std::string damage_of(const fs::path& libraries) {
  std::error_code error;
  for (const char* name : {"libc10.so", "libtorch_cpu.so", "libtorch.so", "libc10_cuda.so", "libtorch_cuda.so"}) {
    const fs::path path = libraries / name;
    if (!fs::exists(path, error)) continue;
    const ElfFile library(path);
    if (!library) {
      return fmt::format("{} is no library ({} bytes), or may not be read: the installation is damaged", path.string(),
                         fs::file_size(path, error));
    }
    if (library.is_cut_short()) {
      return fmt::format("{} ends too early, after {} bytes: the installation is damaged (was the disk full?)",
                         path.string(), fs::file_size(path, error));
    }
    if (!library.is_of_this_machine())
      return fmt::format("{} was built for another kind of processor than this machine's", path.string());
  }
  return "";
}

TorchInstall described(const fs::path& dir) {
  TorchInstall torch{.dir = dir, .version = torch_version(dir).value_or("")};
  const auto source = small_file(dir / "version.py");
  torch.cuda = source ? python_string(*source, "cuda").value_or("") : cuda_of_version(torch.version);
  return torch;
}

// Why a build is none for CUDA although it is none for the CPU alone either; empty: it is not of that kind.
std::string other_platform(const fs::path& dir, const std::string& version) {
  const auto source = small_file(dir / "version.py");
  const std::string hip = source ? python_string(*source, "hip").value_or("") : "";
  const std::string xpu = source ? python_string(*source, "xpu").value_or("") : "";
  if (!hip.empty() || version.find("+rocm") != std::string::npos)
    return fmt::format("{} is built for ROCm{}{}, AMD's platform, and has no CUDA", version, hip.empty() ? "" : " ",
                       hip);
  if (!xpu.empty() || version.find("+xpu") != std::string::npos)
    return fmt::format("{} is built for Intel's graphics cards (XPU), and has no CUDA", version);
  return "";
}

}  // namespace

std::vector<fs::path> site_packages_around(const fs::path& binary) {
  std::vector<fs::path> found;
  for (fs::path folder = binary.parent_path(); folder.has_relative_path(); folder = folder.parent_path()) {
    if (folder.filename() == "site-packages" || folder.filename() == "dist-packages") found.push_back(folder);
  }
  const fs::path lib = binary.parent_path().parent_path() / "lib";
  std::error_code error;
  for (fs::directory_iterator entry(lib, error), end; !error && entry != end; entry.increment(error)) {
    if (!entry->path().filename().string().starts_with("python3")) continue;
    for (const char* name : {"site-packages", "dist-packages"}) found.push_back(entry->path() / name);
  }
  return found;
}

std::optional<std::string> torch_version(const fs::path& dir) {
  if (const auto source = small_file(dir / "version.py")) return python_string(*source, "__version__");
  // The archives from pytorch.org have no Python files.
  auto text = small_file(dir / "build-version");
  if (text) text->erase(text->find_last_not_of(" \r\n") + 1);
  return text;
}

std::optional<TorchInstall> read_torch(const fs::path& dir) {
  if (!is_torch(dir)) return std::nullopt;
  return described(dir);
}

std::optional<TorchInstall> find_torch(std::string* why) {
  std::string reason;
  const auto dir = find_torch_folder(reason);
  if (dir) return read_torch(*dir);
  if (why) *why = reason;
  return std::nullopt;
}

std::optional<fs::path> torch_library_folder(const fs::path& dir) {
  if (is_torch(dir)) return dir / "lib";
  const fs::path prefix = conda_prefix(dir);
  if (prefix.empty() || !is_torch(prefix)) return std::nullopt;
  return prefix / "lib";
}

TorchFacts torch_facts_of(const fs::path& dir) {
  TorchFacts facts;
  const auto libraries = torch_library_folder(dir);
  if (!libraries) {
    facts.error = fmt::format("{} has no lib/libtorch.so", dir.string());
    return facts;
  }
  const TorchInstall install = described(dir);
  facts.dir = dir.string();
  facts.version = install.version;
  facts.cuda = install.cuda;
  std::error_code error;
  facts.cuda_library = fs::exists(*libraries / "libtorch_cuda.so", error);
  facts.error = first_of({other_platform(dir, install.version), damage_of(*libraries)});
  read_needs(*libraries, facts);
  if (!facts.cuda_library) return facts;
  const TorchFolders folders{*libraries, dir.parent_path(), conda_prefix(dir)};
  facts.architectures = architectures_of(*libraries);
  facts.cudnn = cudnn_version(folders);
  facts.nccl = nccl_version(folders);
  return facts;
}

TorchFacts probe_torch_opening(const fs::path& dir) {
  TorchFacts facts;
  facts.dir = dir.string();
  const fs::path folder = torch_library_folder(dir).value_or(dir / "lib");
  std::error_code error;
  const DynamicLibrary torch(fs::absolute(folder / "libtorch.so", error));
  facts.outcome = torch ? Outcome::ok : Outcome::failed;
  facts.error = torch.error();
  if (torch) facts.cuda_mapped = mapped_library("libtorch_cuda.so").has_value();
  return facts;
}

}  // namespace reelgrad
