#include "reelgrad/doctor/probes/system_probe.h"

#include <sys/utsname.h>

#include <algorithm>
#include <charconv>
#include <sstream>
#include <string_view>

#include "reelgrad/doctor/probes/library_probe.h"

namespace reelgrad {
namespace {

constexpr std::size_t kLibraryBytes = 32 << 20;

std::string unquoted(std::string text) {
  const bool quoted = text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front();
  return quoted ? text.substr(1, text.size() - 2) : text;
}

void probe_distribution(const RootFiles& files, SystemFacts& facts) {
  std::string text = files.text("/etc/os-release");
  if (text.empty()) text = files.text("/usr/lib/os-release");
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    const std::string name = line.substr(0, equals), value = unquoted(line.substr(equals + 1));
    if (name == "PRETTY_NAME") facts.os = value;
    if (name == "ID") facts.os_id = value;
    if (name == "ID_LIKE") facts.os_like = value;
    if (name == "VERSION_ID") facts.os_version = value;
  }
}

void probe_kernel(const RootFiles& files, SystemFacts& facts) {
  utsname names{};
  const bool known = ::uname(&names) == 0;
  facts.kernel = files.first_line("/proc/sys/kernel/osrelease");
  if (facts.kernel.empty() && known && files.is_this_machine()) facts.kernel = names.release;
  if (known) facts.machine = names.machine;
}

// "GNU C Library (…) stable release version 2.36."
std::string glibc_version(const std::string& library) {
  constexpr std::string_view kMark = "release version ";
  const std::size_t mark = library.find(kMark);
  if (mark == std::string::npos) return "";
  const std::size_t begin = mark + kMark.size();
  std::string version = library.substr(begin, library.find_first_not_of("0123456789.", begin) - begin);
  while (version.ends_with('.')) version.pop_back();
  return version;
}

// The newest of "GLIBCXX_3.4.N".
std::string libstdcxx_version(const std::string& library) {
  constexpr std::string_view kMark = "GLIBCXX_3.4.";
  int newest = -1;
  for (std::size_t at = library.find(kMark); at != std::string::npos; at = library.find(kMark, at + 1)) {
    int number = -1;
    std::from_chars(library.data() + at + kMark.size(), library.data() + library.size(), number);
    newest = std::max(newest, number);
  }
  return newest < 0 ? "" : "3.4." + std::to_string(newest);
}

std::string library_bytes(const RootFiles& files, const Environment& environment, const std::string& name) {
  const auto path = library_on_path(files, environment, name);
  return path ? files.text(*path, kLibraryBytes) : "";
}

// Four bytes of attributes, then the value.
bool secure_boot(const RootFiles& files) {
  const std::string value = files.text("/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c");
  return value.size() == 5 && value[4] == 1;
}

void probe_memory(const RootFiles& files, SystemFacts& facts) {
  std::istringstream lines(files.text("/proc/meminfo"));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    std::int64_t kb = 0;
    if (!(words >> name >> kb)) continue;
    if (name == "MemTotal:") facts.ram_mb = kb >> 10;
    if (name == "MemAvailable:") facts.ram_free_mb = kb >> 10;
    if (name == "SwapTotal:") facts.swap_mb = kb >> 10;
  }
}

}  // namespace

SystemFacts probe_system(const RootFiles& files, const Environment& environment) {
  SystemFacts facts;
  probe_distribution(files, facts);
  probe_kernel(files, facts);
  facts.glibc = glibc_version(library_bytes(files, environment, "libc.so.6"));
  facts.libstdcxx = libstdcxx_version(library_bytes(files, environment, "libstdc++.so.6"));
  facts.secure_boot = secure_boot(files);
  probe_memory(files, facts);
  probe_container(files, environment, facts);
  probe_limits(files, facts);
  return facts;
}

}  // namespace reelgrad
