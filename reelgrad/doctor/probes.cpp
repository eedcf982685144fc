#include "reelgrad/doctor/probes.h"

#include <sys/utsname.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

#include "reelgrad/base/error.h"
#include "reelgrad/base/process.h"
#include "reelgrad/doctor/driver.h"
#include "reelgrad/doctor/torch_install.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kProgramLimit{5};

std::string first_line(const fs::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

std::string os_name() {
  std::ifstream stream("/etc/os-release");
  constexpr std::string_view kKey = "PRETTY_NAME=";
  for (std::string line; std::getline(stream, line);) {
    if (!line.starts_with(kKey)) continue;
    std::string name = line.substr(kKey.size());
    if (name.size() >= 2 && name.front() == '"') name = name.substr(1, name.size() - 2);
    return name;
  }
  return "";
}

std::string kernel_release() {
  utsname names{};
  return ::uname(&names) == 0 ? names.release : "";
}

std::vector<PciCardFacts> pci_cards() {
  std::vector<PciCardFacts> cards;
  std::error_code error;
  for (fs::directory_iterator entry("/sys/bus/pci/devices", error), end; !error && entry != end;
       entry.increment(error)) {
    const bool nvidia = first_line(entry->path() / "vendor") == "0x10de";
    // Class 03: display controllers, among them compute cards (0302).
    if (nvidia && first_line(entry->path() / "class").starts_with("0x03"))
      cards.push_back({.address = entry->path().filename().string()});
  }
  return cards;
}

// The third word of "ffmpeg version 5.1.6 Copyright …".
std::string ffmpeg_version() {
  if (find_program("ffmpeg").empty()) return "";
  try {
    std::istringstream words(run_process({"ffmpeg", "-version"}, kProgramLimit).out);
    std::string program, version, number;
    words >> program >> version >> number;
    return number;
  } catch (const Error&) {
    return "";
  }
}

TorchFacts torch_facts() {
  TorchFacts facts;
  if (const auto torch = find_torch(&facts.error)) {
    facts.dir = torch->dir.string();
    facts.version = torch->version;
    facts.cuda = torch->cuda;
  }
  return facts;
}

}  // namespace

ProbeOptions probe_options() {
  return {};
}

Facts probe_machine(const ProbeOptions&) {
  Facts facts;
  facts.system.os = os_name();
  facts.system.kernel = kernel_release();
  facts.pci_cards = pci_cards();
  probe_driver(facts);
  facts.torch = torch_facts();
  facts.ffmpeg.version = ffmpeg_version();
  facts.build.torch = REELGRAD_BUILD_TORCH_VERSION;
  facts.build.architectures = REELGRAD_BUILD_ARCHITECTURES;
  return facts;
}

}  // namespace reelgrad
