// What is installed of the driver, and whether its parts fit.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "reelgrad/doctor/rules/rules.h"

namespace reelgrad {
namespace {

constexpr std::string_view kLibcuda = "libcuda.so.1";

// Codes of the driver API and of NVML, as in their headers.
constexpr int kStubLibrary = 34, kSystemDriverMismatch = 803, kCompatNotSupported = 804;
constexpr int kNvmlVersionMismatch = 18;

bool is_broken(const DriverFacts& driver) {
  return driver.outcome == Outcome::crashed || driver.outcome == Outcome::timed_out;
}

std::vector<const LibraryFacts*> libcudas(const Facts& facts) {
  std::vector<const LibraryFacts*> found;
  for (const LibraryFacts& library : facts.libraries) {
    if (library.name == kLibcuda) found.push_back(&library);
  }
  return found;
}

bool has_libcuda(const Facts& facts) {
  if (libcuda_opened(facts)) return true;
  const auto all = libcudas(facts);
  return std::ranges::any_of(all, [](const LibraryFacts* library) { return !library->stub; });
}

// Kernel modules are the host's: in a container what is loaded counts, what is on disk does not.
bool may_judge_modules(const Facts& facts) {
  return !is_wsl(facts) && has_no_devices(facts) && !facts.pci_cards.empty() && !is_broken(facts.driver);
}

std::vector<Phrase> seen_cards(const Facts& facts) {
  if (!facts.pci_cards.empty()) return {{"cards_on_bus", {{"count", std::to_string(facts.pci_cards.size())}}}};
  if (is_wsl(facts) && facts.system.has_dxg) return {{"cards_in_wsl", {}}};
  return {};
}

void add_error(std::vector<Phrase>& found, const std::string& error) {
  if (!error.empty()) found.push_back(error_text(error));
}

// nova is nouveau's successor, and knows no CUDA either.
bool is_free_driver(const PciCardFacts& card) {
  return mentions(card.bound_driver, "nouveau") || mentions(card.bound_driver, "nova");
}

// Of the libcuda that was opened, else of the first on the path; empty: not known.
std::string library_version(const Facts& facts) {
  const auto all = libcudas(facts);
  for (const LibraryFacts* library : all) {
    if (library->path == facts.driver.library && !library->stub) return library->version;
  }
  if (!facts.driver.library.empty()) {
    const std::string name = std::filesystem::path(facts.driver.library).filename().string();
    const std::size_t version = name.find(".so.");
    const std::string tail = version == std::string::npos ? "" : name.substr(version + 4);
    return tail.find('.') == std::string::npos ? "" : tail;
  }
  return all.empty() || all.front()->stub ? "" : all.front()->version;
}

bool is_compat(std::string_view path) {
  return path.find("/compat/") != std::string_view::npos || path.find("cuda-compat") != std::string_view::npos;
}

// Versions that differ, of parts that must be equal.
bool versions_differ(const Facts& facts) {
  const std::string library = library_version(facts);
  return !facts.modules.nvidia_version.empty() && !library.empty() && facts.modules.nvidia_loaded &&
         library != facts.modules.nvidia_version && !is_compat(facts.driver.library);
}

// --- another libcuda

Values library_values(const LibraryFacts& library) {
  return {{"path", library.path},
          {"from", library.from.empty() ? "the linker's path" : library.from},
          {"version", library.version.empty() ? "?" : library.version},
          {"folder", std::filesystem::path(library.path).parent_path().string()}};
}

bool is_wsl_library(const LibraryFacts& library) {
  return library.path.find("/wsl/") != std::string::npos;
}

// The library of the loaded module's version that comes later than the first.
const LibraryFacts* right_library(const Facts& facts) {
  const auto all = libcudas(facts);
  const auto fits = [&](const LibraryFacts* library) {
    return !library->stub && !library->version.empty() && library->version == facts.modules.nvidia_version;
  };
  const auto found = std::ranges::find_if(all, fits);
  return found == all.end() || found == all.begin() ? nullptr : *found;
}

void add_shadow(Drafts& drafts, const std::string& found, const std::string& fix, Values values) {
  drafts.add({.code = "LIBCUDA_SHADOWED", .found = {{found, values}}, .fix = {{fix, values}}});
}

Values opened_library(const Facts& facts) {
  const auto all = libcudas(facts);
  for (const LibraryFacts* library : all) {
    if (library->path == facts.driver.library) return library_values(*library);
  }
  const std::string path = facts.driver.library.empty() ? std::string(kLibcuda) : facts.driver.library;
  return library_values({.name = std::string(kLibcuda), .path = path, .from = "LD_LIBRARY_PATH"});
}

// --- an old driver

std::vector<Phrase> newer_driver(const Facts& facts, int needed) {
  std::vector<Phrase> fix{install_driver(facts, needed)};
  const int driver = driver_major(facts);
  const TorchPair* pair = driver > 0 ? best_pair(driver, {}) : nullptr;
  if (pair) {
    fix.push_back({"DRIVER_TOO_OLD.fix.pair",
                   {{"setup", std::string(pair->setup)},
                    {"torch", std::string(pair->torch)},
                    {"cuda", std::string(pair->cuda)}}});
  }
  const auto card = std::ranges::find_if(
      facts.devices, [&](const DeviceFacts& device) { return may_use_compat(device.name, driver); });
  if (card != facts.devices.end() && !is_wsl(facts)) {
    fix.push_back(
        {"DRIVER_TOO_OLD.fix.compat",
         {{"card", one_line(card->name)}, {"package", compat_package(facts.torch.cuda)}, {"cuda", facts.torch.cuda}}});
  }
  return fix;
}

}  // namespace

void find_missing_driver(const Facts& facts, Drafts& drafts) {
  if (!has_no_devices(facts) || libcuda_opened(facts) || is_broken(facts.driver) || !knows_of_a_card(facts)) return;
  std::vector<Phrase> found = seen_cards(facts);
  found.push_back(facts.driver.error.empty() ? Phrase{"no_libcuda", {}} : error_text(facts.driver.error));
  const KernelModuleFacts& modules = facts.modules;
  if (!module_loaded(facts) || is_wsl(facts) || is_container(facts)) {
    drafts.add({.code = "NO_DRIVER", .found = found, .fix = {install_driver(facts)}});
    return;
  }
  const std::string version = modules.nvidia_version.empty() ? "?" : modules.nvidia_version;
  found.push_back({"NO_DRIVER.found.module", {{"version", version}}});
  const int major = leading_number(modules.nvidia_version);
  const Values values{{"version", version}, {"driver", std::to_string(major > 0 ? major : 580)}};
  drafts.add({.code = "NO_DRIVER",
              .found = found,
              .fix = {for_distribution("NO_DRIVER.fix.library", facts, values)},
              .what = "NO_DRIVER.what.library"});
}

void find_nouveau(const Facts& facts, Drafts& drafts) {
  if (!may_judge_modules(facts) || module_loaded(facts)) return;
  std::vector<Phrase> found;
  if (facts.modules.nouveau_loaded) found.push_back({"NOUVEAU.found.loaded", {}});
  for (const PciCardFacts& card : facts.pci_cards) {
    if (is_free_driver(card))
      found.push_back({"NOUVEAU.found.bound", {{"address", card.address}, {"driver", card.bound_driver}}});
  }
  if (found.empty()) return;
  std::vector<Phrase> fix{install_driver(facts)};
  if (facts.modules.nvidia_on_disk && !is_container(facts)) {
    fix = {for_distribution("NOUVEAU.fix.blacklist", facts)};
  } else {
    fix.push_back({"NOUVEAU.fix.after", {}});
  }
  const auto has_nova = [](const PciCardFacts& card) { return mentions(card.bound_driver, "nova"); };
  if (std::ranges::any_of(facts.pci_cards, has_nova)) fix.push_back({"NOUVEAU.fix.nova", {}});
  drafts.add({.code = "NOUVEAU", .found = found, .fix = fix});
}

void find_unloaded_module(const Facts& facts, Drafts& drafts) {
  const KernelModuleFacts& modules = facts.modules;
  if (!may_judge_modules(facts) || module_loaded(facts) || (!modules.nvidia_on_disk && !has_libcuda(facts))) return;
  // Whoever did not ask the driver knows nothing of its module either: an older report.
  const bool was_asked = facts.driver.init_code >= 0 || facts.driver.nvml_code >= 0 || !libcuda_opened(facts);
  if (!modules.nvidia_on_disk && !was_asked) return;
  std::vector<Phrase> found;
  const std::string kernel = facts.system.kernel.empty() ? "?" : facts.system.kernel;
  found.push_back({modules.nvidia_on_disk ? "MODULE_NOT_LOADED.found.on_disk" : "MODULE_NOT_LOADED.found.not_built",
                   {{"kernel", kernel}}});
  const bool refused = facts.system.secure_boot && modules.nvidia_on_disk;
  if (refused) found.push_back({"MODULE_NOT_LOADED.found.secure_boot", {}});
  add_error(found, facts.driver.error);
  Phrase fix{"MODULE_NOT_LOADED.fix.load", {}};
  if (refused) fix.key = "MODULE_NOT_LOADED.fix.secure_boot";
  if (!modules.nvidia_on_disk || is_container(facts)) fix = for_driver("MODULE_NOT_LOADED.fix.build", facts);
  drafts.add({.code = "MODULE_NOT_LOADED", .found = found, .fix = {fix}});
}

void find_missing_uvm(const Facts& facts, Drafts& drafts) {
  const bool judged = has_no_devices(facts) && knows_of_a_card(facts) && !is_wsl(facts) && facts.driver.init_code > 0;
  if (!judged || !facts.modules.nvidia_loaded || facts.modules.nvidia_uvm_loaded) return;
  const std::string said = fmt::format("cuInit: {}", facts.driver.init_code);
  drafts.add({.code = "UVM_NOT_LOADED",
              .found = {{"UVM_NOT_LOADED.found",
                         {{"version", facts.modules.nvidia_version},
                          {"error", facts.driver.error.empty() ? said : one_line(facts.driver.error)}}}},
              .fix = {for_container("UVM_NOT_LOADED.fix", facts)}});
}

void find_driver_mismatch(const Facts& facts, Drafts& drafts) {
  if (!has_no_devices(facts) || is_wsl(facts)) return;
  std::vector<Phrase> found;
  if (versions_differ(facts)) {
    found.push_back({"DRIVER_MISMATCH.found.versions",
                     {{"module", facts.modules.nvidia_version}, {"library", library_version(facts)}}});
  }
  if (facts.driver.nvml_code == kNvmlVersionMismatch)
    found.push_back({"DRIVER_MISMATCH.found.nvml", {{"code", std::to_string(kNvmlVersionMismatch)}}});
  if (facts.driver.init_code == kSystemDriverMismatch)
    found.push_back({"DRIVER_MISMATCH.found.cuda", {{"code", std::to_string(kSystemDriverMismatch)}}});
  if (found.empty()) return;
  const std::string fix = is_container(facts) ? "DRIVER_MISMATCH.fix.container" : "DRIVER_MISMATCH.fix.other";
  drafts.add({.code = "DRIVER_MISMATCH", .found = found, .fix = {{fix, {}}}});
}

void find_shadowed_libcuda(const Facts& facts, Drafts& drafts) {
  if (!has_no_devices(facts)) return;
  const auto all = libcudas(facts);
  const LibraryFacts* first = all.empty() ? nullptr : all.front();
  if (is_wsl(facts) && first && !is_wsl_library(*first)) {
    add_shadow(drafts, "LIBCUDA_SHADOWED.found.wsl", "LIBCUDA_SHADOWED.fix.wsl", library_values(*first));
  } else if (first && first->stub) {
    add_shadow(drafts, "LIBCUDA_SHADOWED.found.stub", "LIBCUDA_SHADOWED.fix.stub", library_values(*first));
  } else if (facts.driver.init_code == kStubLibrary) {
    Values values = opened_library(facts);
    values["code"] = std::to_string(kStubLibrary);
    add_shadow(drafts, "LIBCUDA_SHADOWED.found.code", "LIBCUDA_SHADOWED.fix.stub", values);
  } else if (facts.driver.init_code == kCompatNotSupported) {
    add_shadow(drafts, "LIBCUDA_SHADOWED.found.compat", "LIBCUDA_SHADOWED.fix.other", opened_library(facts));
  } else if (const LibraryFacts* right = right_library(facts); right && first && versions_differ(facts)) {
    Values values = library_values(*first);
    values["right"] = right->path;
    values["module"] = facts.modules.nvidia_version;
    add_shadow(drafts, "LIBCUDA_SHADOWED.found.other", "LIBCUDA_SHADOWED.fix.other", values);
  }
}

void find_old_driver(const Facts& facts, Drafts& drafts) {
  const auto needed = missing_driver(facts.torch, facts);
  if (!needed || !knows_of_a_card(facts)) return;
  // No driver makes cards of this age compute with reelgrad.
  const auto is_old = [](const DeviceFacts& device) { return capability_of(device) < kOldestCard; };
  if (!facts.devices.empty() && std::ranges::all_of(facts.devices, is_old)) return;
  const bool known = !facts.driver.version.empty();
  drafts.add({.code = "DRIVER_TOO_OLD",
              .found = {{known ? "DRIVER_TOO_OLD.found" : "DRIVER_TOO_OLD.found.unknown",
                         {{"driver", facts.driver.version},
                          {"level", cuda_level(facts.driver.cuda)},
                          {"version", facts.torch.version},
                          {"cuda", facts.torch.cuda},
                          {"needed", std::to_string(*needed)}}}},
              .fix = newer_driver(facts, *needed)});
}

void find_broken_driver(const Facts& facts, Drafts& drafts) {
  const DriverFacts& driver = facts.driver;
  if (!is_broken(driver)) return;
  const std::string library = driver.library.empty() ? std::string(kLibcuda) : driver.library;
  const bool crashed = driver.outcome == Outcome::crashed;
  std::vector<Phrase> found{
      {"DRIVER_CRASHES.found",
       {{"library", library},
        {"error", driver.error.empty() ? (crashed ? "SIGSEGV?" : "…") : one_line(driver.error)}}}};
  if (!facts.modules.xids.empty())
    found.push_back({"xids", {{"xids", fmt::format("{}", fmt::join(facts.modules.xids, ", "))}}});
  const Phrase fix = for_driver(crashed ? "DRIVER_CRASHES.fix" : "DRIVER_HANGS.fix", facts, {{"library", library}});
  drafts.add({.code = crashed ? "DRIVER_CRASHES" : "DRIVER_HANGS", .found = found, .fix = {fix}});
}

void find_no_card(const Facts& facts, Drafts& drafts) {
  if (knows_of_a_card(facts)) return;
  Phrase found{"NO_CARD.found", {}};
  if (!facts.driver.error.empty()) found = {"NO_CARD.found.error", {{"error", one_line(facts.driver.error)}}};
  drafts.add({.code = "NO_CARD", .severity = Severity::info, .found = {found}});
}

}  // namespace reelgrad
