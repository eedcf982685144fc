#include "reelgrad/doctor/diagnose.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

namespace reelgrad {
namespace {

constexpr int kOldestMajor = 7, kOldestMinor = 5;  // what PyTorch for CUDA 13 and the preset `full` have code for

// The least driver of a CUDA major version: NVIDIA's table of minor version compatibility, CUDA Compatibility guide.
struct LeastDriver {
  int cuda_major, driver_major;
};
constexpr LeastDriver kLeastDrivers[] = {{11, 450}, {12, 525}, {13, 580}};

constexpr std::string_view kOnTheProcessor = "Training and restoring still work on the processor, slowly.";

int leading_number(std::string_view text) {
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

std::string cuda_level(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// The driver that PyTorch's CUDA needs, when this one is too old for it.
std::optional<int> missing_driver(const Facts& facts) {
  const int cuda_major = leading_number(facts.torch.cuda);
  const int driver_major = leading_number(facts.driver.version);
  for (const LeastDriver& least : kLeastDrivers) {
    if (least.cuda_major != cuda_major) continue;
    if (driver_major > 0) return driver_major < least.driver_major ? std::optional(least.driver_major) : std::nullopt;
    if (facts.driver.cuda > 0 && facts.driver.cuda / 1000 < cuda_major) return least.driver_major;
  }
  return std::nullopt;
}

bool is_too_old(const DeviceFacts& device) {
  return std::pair(device.compute_major, device.compute_minor) < std::pair(kOldestMajor, kOldestMinor);
}

bool has_kernels(const DeviceFacts& device, const Facts& facts) {
  // A report without the build's list says nothing about it.
  return facts.build.architectures.empty() ||
         has_kernels_for(device.compute_major, device.compute_minor, facts.build.architectures);
}

std::string card(const DeviceFacts& device) {
  return fmt::format("card {} ({}, compute capability {}.{})", device.index, device.name, device.compute_major,
                     device.compute_minor);
}

std::string driver_text(const Facts& facts) {
  const std::string version = facts.driver.version.empty() ? "of unknown version" : facts.driver.version;
  return fmt::format("driver {}, which offers CUDA up to {}", version, cuda_level(facts.driver.cuda));
}

void find_torch_problem(const Facts& facts, std::vector<Finding>& findings) {
  const TorchFacts& torch = facts.torch;
  const std::string wanted = facts.build.torch.substr(0, facts.build.torch.find('+'));
  const std::string install = fmt::format(
      "Run scripts/setup.sh, or install torch=={} into the environment, or set "
      "REELGRAD_TORCH to the folder that holds its lib/libtorch.so.",
      wanted);
  if (torch.dir.empty()) {
    findings.push_back({"TORCH_MISSING", Severity::error, "PyTorch was not found, which reelgrad computes with.",
                        torch.error, install});
  } else if (torch.cuda.empty()) {
    findings.push_back({"CPU_ONLY_BUILD", Severity::error,
                        "This PyTorch was built without CUDA: it cannot use any card.",
                        fmt::format("{} is version {} without CUDA", torch.dir, torch.version), install});
  } else if (!facts.build.torch.empty() && torch.version != facts.build.torch) {
    findings.push_back({"TORCH_VERSION_MISMATCH", Severity::error, "reelgrad was built for another version of PyTorch.",
                        fmt::format("{} is {}, wanted is {}", torch.dir, torch.version, facts.build.torch), install});
  }
}

// No usable driver or no device: why.
void find_missing_card(const Facts& facts, std::vector<Finding>& findings) {
  if (facts.driver.cuda == 0 && !facts.pci_cards.empty()) {
    findings.push_back(
        {"NO_DRIVER", Severity::error, "An NVIDIA card is there, but its driver is not installed.",
         fmt::format("{} NVIDIA card(s) on the PCI bus; {}", facts.pci_cards.size(), facts.driver.error),
         "Install NVIDIA's driver, 580 or newer, and restart. Debian: the package nvidia-driver (non-free); "
         "Ubuntu: sudo ubuntu-drivers install. In a container: start it with the NVIDIA container runtime."});
    return;
  }
  const auto visible = facts.environment.find("CUDA_VISIBLE_DEVICES");
  const std::string hidden = visible == facts.environment.end() ? "" : "; CUDA_VISIBLE_DEVICES=" + visible->second;
  if (!facts.pci_cards.empty() || (facts.driver.cuda > 0 && !hidden.empty())) {
    findings.push_back(
        {"CARD_UNAVAILABLE", Severity::error, "The driver gives no card to this program.",
         fmt::format("{} NVIDIA card(s) on the PCI bus; {}{}", facts.pci_cards.size(),
                     facts.driver.error.empty() ? "the driver counts 0 devices" : facts.driver.error, hidden),
         hidden.empty() ? "Restart the machine, or the container with the NVIDIA container runtime. If it "
                          "stays, reinstall the driver."
                        : "Unset CUDA_VISIBLE_DEVICES, or name a card that is there."});
    return;
  }
  findings.push_back({"NO_CARD", Severity::info, fmt::format("There is no NVIDIA card. {}", kOnTheProcessor),
                      facts.driver.error.empty() ? "no NVIDIA card on the PCI bus" : facts.driver.error, ""});
}

void find_card_problems(const Facts& facts, std::vector<Finding>& findings) {
  if (const auto needed = missing_driver(facts)) {
    findings.push_back({"DRIVER_TOO_OLD", Severity::error, "The NVIDIA driver is too old for this PyTorch.",
                        fmt::format("{}; PyTorch {} needs CUDA {}, hence driver {} or newer", driver_text(facts),
                                    facts.torch.version, facts.torch.cuda, *needed),
                        fmt::format("Install driver {} or newer and restart{}.", *needed,
                                    *needed > 525 && leading_number(facts.driver.version) >= 525
                                        ? ", or build for this driver with scripts/setup.sh --cuda 12.8"
                                        : "")});
  }
  const bool another_runs =
      std::ranges::any_of(facts.devices, [&](const DeviceFacts& device) { return why_not(device, facts).empty(); });
  for (const DeviceFacts& device : facts.devices) {
    const Severity severity = another_runs ? Severity::warning : Severity::error;
    if (is_too_old(device)) {
      findings.push_back(
          {"CARD_TOO_OLD", severity, "This card is too old.",
           fmt::format("{}; {}.{} is the least", card(device), kOldestMajor, kOldestMinor),
           fmt::format("Use a card of the Turing generation (GTX 16, RTX 20) or newer. {}", kOnTheProcessor)});
    } else if (!has_kernels(device, facts)) {
      findings.push_back({"CARD_NOT_IN_BUILD", severity, "This build of reelgrad has no kernels for this card.",
                          fmt::format("{}; built for {}", card(device), facts.build.architectures),
                          "Build for every card: cmake --preset full && cmake --build --preset full."});
    }
  }
}

void find_video_problems(const Facts& facts, std::vector<Finding>& findings) {
  if (facts.vapoursynth.core.empty()) {
    findings.push_back({"VAPOURSYNTH_MISSING", Severity::error, "VapourSynth cannot be used, which reads every clip.",
                        facts.vapoursynth.error.empty() ? "it was not found" : facts.vapoursynth.error,
                        "Run scripts/setup.sh, or install VapourSynth R81 or newer into the environment."});
  }
  if (facts.ffmpeg.version.empty()) {
    findings.push_back({"FFMPEG_MISSING", Severity::warning, "ffmpeg was not found: only .y4m files can be written.",
                        "no program ffmpeg on PATH", "Install it: sudo apt install ffmpeg."});
  }
}

}  // namespace

bool has_kernels_for(int major, int minor, const std::string& architectures) {
  const std::pair wanted(major, minor);
  std::istringstream list(architectures);
  for (std::string entry; std::getline(list, entry, ',');) {
    const int number = leading_number(entry);
    const std::pair built(number / 10, number % 10);
    const std::string_view name = std::string_view(entry).substr(0, entry.find('-'));
    if (name.ends_with('a')) {
      if (built == wanted) return true;
      continue;
    }
    const bool has_code = !entry.ends_with("-virtual"), has_ptx = !entry.ends_with("-real");
    if (has_code && built.first == major && built.second <= minor) return true;
    if (has_ptx && built <= wanted) return true;
  }
  return false;
}

std::string why_not(const DeviceFacts& device, const Facts& facts) {
  if (is_too_old(device)) {
    return fmt::format("compute capability {}.{} is below {}.{}", device.compute_major, device.compute_minor,
                       kOldestMajor, kOldestMinor);
  }
  if (!has_kernels(device, facts)) {
    return fmt::format("this build has no kernels for compute capability {}.{} (built for {})", device.compute_major,
                       device.compute_minor, facts.build.architectures);
  }
  if (const auto needed = missing_driver(facts)) return fmt::format("the driver is older than {}", *needed);
  if (facts.torch.dir.empty()) return "PyTorch was not found";
  if (facts.torch.cuda.empty()) return "PyTorch was built without CUDA";
  if (!facts.build.torch.empty() && facts.torch.version != facts.build.torch) {
    return fmt::format("PyTorch is {} instead of {}", facts.torch.version, facts.build.torch);
  }
  return "";
}

std::vector<Finding> diagnose(const Facts& facts) {
  std::vector<Finding> findings;
  find_torch_problem(facts, findings);
  if (facts.devices.empty()) {
    find_missing_card(facts, findings);
  } else {
    find_card_problems(facts, findings);
  }
  find_video_problems(facts, findings);
  std::ranges::stable_sort(findings, {}, &Finding::severity);
  return findings;
}

}  // namespace reelgrad
