#include "reelgrad/doctor/probes/library_probe.h"

#include <fmt/format.h>
#include <fnmatch.h>
#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <functional>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

namespace reelgrad {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kCacheBytes = 16 << 20;
constexpr std::string_view kRuntime = "libcudart.so.";
constexpr const char* kWslFolder = "/usr/lib/wsl/lib";
constexpr int kIncludeDepth = 4;

// The fields of the cache's second format, which glibc alone writes since 2.32, and before it after the first.
constexpr std::string_view kCacheMagic = "glibc-ld.so.cache1.1";
constexpr std::size_t kCacheHeaderBytes = 48, kCacheEntryBytes = 24;

template <class Number>
std::optional<Number> number_at(std::string_view bytes, std::size_t offset) {
  Number number{};
  if (offset > bytes.size() || bytes.size() - offset < sizeof number) return std::nullopt;
  std::memcpy(&number, bytes.data() + offset, sizeof number);
  return number;
}

std::string string_at(std::string_view bytes, std::size_t offset) {
  if (offset >= bytes.size()) return "";
  return std::string(bytes.substr(offset, bytes.find('\0', offset) - offset));
}

// The flags' second byte is the instruction set: x86-64 or 64-bit ARM. Those of 32 bits are of no use to us.
bool is_64_bit(std::uint32_t flags) {
  const std::uint32_t set = flags >> 8 & 0xff;
  return set == 0x03 || set == 0x0a;
}

using Wanted = std::function<bool(std::string_view)>;

bool is_of_cuda(std::string_view name) {
  static constexpr std::array<std::string_view, 5> kNames{"libcuda.so.1", "libcuda.so", "libtorch.so", "libcudnn.so.9",
                                                          "libnvidia-ml.so.1"};
  if (std::find(kNames.begin(), kNames.end(), name) != kNames.end()) return true;
  return name.starts_with(kRuntime) && name.size() > kRuntime.size() &&
         std::isdigit(static_cast<unsigned char>(name[kRuntime.size()]));
}

// "580.65.06" of "libcuda.so.580.65.06"; a single number names an interface, not a version.
std::string version_in_name(const fs::path& file) {
  const std::string name = file.filename().string();
  const std::size_t mark = name.find(".so.");
  if (mark == std::string::npos) return "";
  const std::string version = name.substr(mark + 4);
  return version.find('.') == std::string::npos ? "" : version;
}

// Walks the linker's path.
class LibrarySearch {
 public:
  LibrarySearch(const RootFiles& files, Wanted wanted) : files_(files), wanted_(std::move(wanted)) {}

  void add_folder(const fs::path& folder, const char* from) {
    for (const std::string& name : files_.names(folder)) {
      if (wanted_(name)) add(name, folder / name, from);
    }
  }

  void add(const std::string& name, const fs::path& path, const char* from) {
    const auto file = files_.resolved(path);
    if (!file || is_of_32_bit(*file)) return;
    // The runtime has a name for each part of its version: one is enough.
    const std::string key = name.starts_with(kRuntime) ? std::string(kRuntime) : name;
    if (!seen_.insert(key + file->string()).second) return;
    const auto is_stub = [](const fs::path& a) { return a.string().find("/stubs/") != std::string::npos; };
    found_.push_back({.name = name,
                      .path = file->string(),
                      .version = version_in_name(*file),
                      .from = from,
                      .stub = is_stub(path) || is_stub(*file)});
  }

  bool wants(const std::string& name) const { return wanted_(name); }
  const std::vector<LibraryFacts>& found() const { return found_; }

 private:
  // The linker passes these over: Fedora's /usr/lib is full of them.
  bool is_of_32_bit(const fs::path& file) const {
    return files_.text(file, 5) == std::string_view(
                                       "\x7f"
                                       "ELF\x01");
  }

  const RootFiles& files_;
  Wanted wanted_;
  std::set<std::string> seen_;
  std::vector<LibraryFacts> found_;
};

// Colons and semicolons divide; an empty entry is the working folder.
void search_variable(LibrarySearch& search, const RootFiles& files, const Environment& environment) {
  const std::string folders = variable_of(environment, "LD_LIBRARY_PATH");
  if (folders.empty()) return;
  for (std::size_t begin = 0; begin <= folders.size();) {
    const std::size_t end = std::min(folders.find_first_of(":;", begin), folders.size());
    fs::path folder = folders.substr(begin, end - begin);
    std::error_code error;
    if (folder.is_relative() && files.is_this_machine()) folder = fs::current_path(error) / folder;
    if (folder.is_absolute()) search.add_folder(folder, "LD_LIBRARY_PATH");
    begin = end + 1;
  }
}

void search_configured(LibrarySearch& search, const RootFiles& files, const fs::path& file, int depth);

void include_configuration(LibrarySearch& search, const RootFiles& files, fs::path pattern, int depth) {
  if (pattern.is_relative()) pattern = fs::path("/etc") / pattern;
  const fs::path folder = pattern.parent_path();
  for (const std::string& name : files.names(folder)) {
    if (::fnmatch(pattern.filename().c_str(), name.c_str(), FNM_PERIOD) == 0)
      search_configured(search, files, folder / name, depth);
  }
}

// A folder a line, comments after #, "include ld.so.conf.d/*.conf".
void search_configured(LibrarySearch& search, const RootFiles& files, const fs::path& file, int depth) {
  if (depth == 0) return;
  std::istringstream lines(files.text(file));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string word, pattern;
    if (!(words >> word)) continue;
    if (word == "include") {
      while (words >> pattern) include_configuration(search, files, pattern, depth - 1);
    } else {
      search.add_folder(word, "ldconfig");
    }
  }
}

void search_cache(LibrarySearch& search, const RootFiles& files) {
  const auto cached = parse_linker_cache(files.text("/etc/ld.so.cache", kCacheBytes));
  if (cached.empty()) return search_configured(search, files, "/etc/ld.so.conf", kIncludeDepth);
  for (const CachedLibrary& library : cached) {
    if (search.wants(library.name)) search.add(library.name, library.path, "ldconfig");
  }
}

void search_defaults(LibrarySearch& search) {
  utsname names{};
  const std::string machine = ::uname(&names) == 0 ? names.machine : "x86_64";
  for (const std::string& folder :
       {fmt::format("/lib/{}-linux-gnu", machine), fmt::format("/usr/lib/{}-linux-gnu", machine), std::string("/lib64"),
        std::string("/usr/lib64"), std::string("/lib"), std::string("/usr/lib")})
    search.add_folder(folder, "default");
}

LibrarySearch search_path(const RootFiles& files, const Environment& environment, Wanted wanted) {
  LibrarySearch search(files, std::move(wanted));
  search_variable(search, files, environment);
  search_cache(search, files);
  search_defaults(search);
  return search;
}

}  // namespace

std::vector<CachedLibrary> parse_linker_cache(const std::string& bytes) {
  std::vector<CachedLibrary> libraries;
  const std::size_t start = bytes.find(kCacheMagic);
  if (start == std::string::npos) return libraries;
  const std::string_view cache = std::string_view(bytes).substr(start);  // its offsets count from here
  const auto count = number_at<std::uint32_t>(cache, kCacheMagic.size());
  for (std::size_t i = 0; count && i < *count; ++i) {
    const std::size_t entry = kCacheHeaderBytes + i * kCacheEntryBytes;
    const auto flags = number_at<std::uint32_t>(cache, entry);
    const auto name = number_at<std::uint32_t>(cache, entry + 4), path = number_at<std::uint32_t>(cache, entry + 8);
    if (!flags || !name || !path) break;
    if (is_64_bit(*flags)) libraries.push_back({string_at(cache, *name), string_at(cache, *path)});
  }
  return libraries;
}

std::vector<LibraryFacts> probe_libraries(const RootFiles& files, const Environment& environment) {
  LibrarySearch search = search_path(files, environment, is_of_cuda);
  search.add_folder(kWslFolder, "wsl");
  return search.found();
}

std::optional<fs::path> library_on_path(const RootFiles& files, const Environment& environment,
                                        const std::string& name) {
  const LibrarySearch search = search_path(files, environment, [&](std::string_view other) { return other == name; });
  if (search.found().empty()) return std::nullopt;
  return search.found().front().path;
}

}  // namespace reelgrad
