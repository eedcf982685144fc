#include "reelgrad/doctor/probes/kernel_module_probe.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <sstream>
#include <string_view>

#include "reelgrad/base/descriptor.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kIndexBytes = 8 << 20, kLogBytes = 1 << 20;
constexpr std::size_t kKeptXids = 32;
constexpr int kFolderDepth = 3;

bool is_loaded(const RootFiles& files, const std::string& modules, const std::string& name) {
  return modules.starts_with(name + " ") || modules.find("\n" + name + " ") != std::string::npos ||
         files.exists(fs::path("/sys/module") / name);
}

bool is_driver_version(std::string_view word) {
  return word.find('.') != std::string_view::npos && word.find_first_not_of("0123456789.") == std::string_view::npos;
}

// "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build …"
std::string loaded_version(const RootFiles& files) {
  std::istringstream words(files.first_line("/proc/driver/nvidia/version"));
  for (std::string word; words >> word;) {
    if (is_driver_version(word)) return word;
  }
  return files.first_line("/sys/module/nvidia/version");
}

// "nvidia.ko", compressed ones, and Debian's names: "nvidia-current.ko", "nvidia-current-open.ko",
// "nvidia-tesla-535.ko". The kernel's own nvidiafb.ko and nvidia-wmi-ec-backlight.ko are something else.
bool is_driver_module(std::string_view file) {
  const std::size_t ending = file.find(".ko");
  if (ending == std::string_view::npos) return false;
  const std::string_view name = file.substr(0, ending);
  for (const std::string_view part : {"-modeset", "-drm", "-uvm", "-peermem"}) {
    if (name.ends_with(part)) return false;
  }
  return name == "nvidia" || name.starts_with("nvidia-current") || name.starts_with("nvidia-tesla") ||
         name.starts_with("nvidia-legacy");
}

// depmod's list: "updates/dkms/nvidia.ko.xz: kernel/drivers/…".
bool is_in_index(const std::string& index) {
  std::istringstream lines(index);
  for (std::string line; std::getline(lines, line);) {
    const std::string path = line.substr(0, line.find(':'));
    if (is_driver_module(std::string_view(path).substr(path.rfind('/') + 1))) return true;
  }
  return false;
}

bool is_in_folder(const RootFiles& files, const fs::path& folder, int depth) {
  for (const std::string& name : files.names(folder)) {
    if (is_driver_module(name)) return true;
    if (depth > 0 && is_in_folder(files, folder / name, depth - 1)) return true;
  }
  return false;
}

// The folders as well: a module that was copied there is not in the list until depmod runs.
bool is_on_disk(const RootFiles& files, const std::string& kernel) {
  for (const char* root : {"/lib/modules", "/usr/lib/modules"}) {
    const fs::path modules = fs::path(root) / kernel;
    if (is_in_index(files.text(modules / "modules.dep", kIndexBytes))) return true;
    for (const char* folder : {"updates", "extra", "extramodules", "weak-updates", "kernel/drivers/video"}) {
      if (is_in_folder(files, modules / folder, kFolderDepth)) return true;
    }
    // Ubuntu's ready-made ones: kernel/nvidia-580-open/nvidia.ko.
    for (const std::string& name : files.names(modules / "kernel")) {
      if (name.starts_with("nvidia-") && is_in_folder(files, modules / "kernel" / name, 0)) return true;
    }
  }
  return false;
}

// All that the kernel still remembers; a record a read, without waiting for the next.
std::string kernel_messages(const RootFiles& files) {
  const Descriptor log(::open(files.host_path("/dev/kmsg").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  struct stat about {};
  if (!log || ::fstat(log.get(), &about) != 0 || !S_ISCHR(about.st_mode)) return "";
  std::string text;
  std::array<char, 1 << 13> record;
  while (text.size() < kLogBytes * 4) {
    const ssize_t got = ::read(log.get(), record.data(), record.size());
    if (got < 0 && (errno == EPIPE || errno == EINTR)) continue;  // EPIPE: the oldest record was overwritten
    if (got <= 0) break;
    text.append(record.data(), static_cast<std::size_t>(got));
  }
  return text;
}

std::string kernel_log(const RootFiles& files) {
  std::string log = files.is_this_machine() ? kernel_messages(files) : "";
  for (const char* file : {"/var/log/kern.log", "/var/log/messages", "/var/log/syslog"}) {
    if (log.empty()) log = files.tail(file, kLogBytes);
  }
  return log;
}

}  // namespace

std::vector<int> xids_in(const std::string& log) {
  std::vector<int> found;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    // The first line of a start: what was before it is past.
    if (line.find("Linux version ") != std::string::npos) found.clear();
    const std::size_t mark = line.find("NVRM: Xid (");
    const std::size_t colon = mark == std::string::npos ? mark : line.find("): ", mark);
    if (colon == std::string::npos) continue;
    int number = 0;
    std::from_chars(line.data() + colon + 3, line.data() + line.size(), number);
    if (number > 0) found.push_back(number);
  }
  if (found.size() > kKeptXids) found.erase(found.begin(), found.end() - kKeptXids);
  return found;
}

KernelModuleFacts probe_kernel_modules(const RootFiles& files, const std::string& kernel) {
  KernelModuleFacts facts;
  const std::string modules = files.text("/proc/modules");
  facts.nvidia_loaded = is_loaded(files, modules, "nvidia");
  facts.nvidia_uvm_loaded = is_loaded(files, modules, "nvidia_uvm");
  facts.nouveau_loaded = is_loaded(files, modules, "nouveau");
  facts.nvidia_on_disk = !kernel.empty() && is_on_disk(files, kernel);
  facts.nvidia_version = loaded_version(files);
  facts.xids = xids_in(kernel_log(files));
  return facts;
}

}  // namespace reelgrad
