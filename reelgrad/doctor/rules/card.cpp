// The cards that the driver gives: kernels, trials, heat, power, neighbours.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "reelgrad/doctor/rules/rules.h"

namespace reelgrad {
namespace {

constexpr int kXidFallenOff = 79;
constexpr int kMemoryXids[] = {48, 64, 94, 95};  // double bit error, remapping failed, contained, uncontained error
constexpr int kNvmlGpuIsLost = 15;

bool has_reelgrad_kernels(const DeviceFacts& device, const Facts& facts) {
  // A report without the build's list says nothing about it.
  return facts.build.architectures.empty() ||
         has_kernels_for(device.compute_major, device.compute_minor, facts.build.architectures);
}

bool has_torch_kernels(const DeviceFacts& device, const Facts& facts) {
  return torch_has_kernels_for(device.compute_major, device.compute_minor, facts.torch.architectures);
}

std::string torch_list(const Facts& facts) {
  return fmt::format("{}", fmt::join(facts.torch.architectures, ", "));
}

Values capability_values(const DeviceFacts& device) {
  return {{"card", card_name(device)}, {"capability", to_string(capability_of(device))}};
}

// A screen's programs: they take their share of every card that drives one.
constexpr std::string_view kDesktopPrograms[] = {"Xorg",        "Xwayland", "gnome-shell", "kwin_x11", "kwin_wayland",
                                                 "plasmashell", "cinnamon", "sway",        "Hyprland", "firefox",
                                                 "chrome",      "chromium", "code"};

bool is_desktop_program(const ProcessFacts& process) {
  const std::string_view name = std::string_view(process.name).substr(process.name.rfind('/') + 1);
  return std::ranges::find(kDesktopPrograms, name) != std::end(kDesktopPrograms);
}

std::vector<ProcessFacts> neighbours(const DeviceFacts& device) {
  std::vector<ProcessFacts> found;
  std::ranges::remove_copy_if(device.processes, std::back_inserter(found), is_desktop_program);
  return found;
}

// Below this it is no neighbour to speak of.
std::int64_t least_shared_mb(const DeviceFacts& device) {
  return std::clamp<std::int64_t>(device.memory_total_mb / 16, 512, 1024);
}

// What the driver itself keeps, a context of its own and rounding.
std::int64_t least_held_mb(const DeviceFacts& device) {
  return std::max<std::int64_t>(1024, device.memory_total_mb / 10);
}

bool knows_all_memory(const std::vector<ProcessFacts>& processes) {
  return std::ranges::all_of(processes, [](const ProcessFacts& process) { return process.used_mb >= 0; });
}

std::int64_t known_memory(const std::vector<ProcessFacts>& processes) {
  std::int64_t sum = 0;
  for (const ProcessFacts& process : processes) {
    // A sum of odd values stays within its type.
    sum += std::clamp<std::int64_t>(process.used_mb, 0, 1 << 30);
  }
  return sum;
}

std::vector<std::string> heat_reasons(const DeviceFacts& device) {
  const auto has = [&](std::string_view reason) {
    return std::ranges::find(device.throttle_reasons, reason) != device.throttle_reasons.end();
  };
  std::vector<std::string> reasons;
  for (const char* reason : {"sw_thermal_slowdown", "hw_thermal_slowdown"}) {
    if (has(reason)) reasons.emplace_back(reason);
  }
  // NVML's general sign: heat, or the power brake, which has a sign of its own.
  if (reasons.empty() && has("hw_slowdown") && !has("hw_power_brake_slowdown")) reasons.emplace_back("hw_slowdown");
  return reasons;
}

void find_heat(const DeviceFacts& device, Drafts& drafts) {
  std::vector<Phrase> found;
  const auto reasons = heat_reasons(device);
  if (!reasons.empty()) {
    found.push_back({"THERMAL_THROTTLE.found.reasons",
                     {{"card", card_name(device)}, {"reasons", fmt::format("{}", fmt::join(reasons, ", "))}}});
  }
  if (device.temperature_slowdown_c > 0 && device.temperature_c >= device.temperature_slowdown_c) {
    found.push_back({"THERMAL_THROTTLE.found.temperature",
                     {{"card", card_name(device)},
                      {"temperature", std::to_string(device.temperature_c)},
                      {"slowdown", std::to_string(device.temperature_slowdown_c)}}});
  }
  if (found.empty()) return;
  drafts.add({.code = "THERMAL_THROTTLE",
              .severity = Severity::warning,
              .found = found,
              .fix = {{"THERMAL_THROTTLE.fix", {}}}});
}

void find_low_power(const DeviceFacts& device, Drafts& drafts) {
  Draft draft{.code = "POWER_LIMITED", .severity = Severity::warning};
  if (device.power_limit_w > 0 && device.power_limit_w < 0.99 * device.power_limit_default_w) {
    const Values values{{"card", card_name(device)},
                        {"index", std::to_string(device.index)},
                        {"limit", number(device.power_limit_w)},
                        {"default", number(device.power_limit_default_w)}};
    draft.found.push_back({"POWER_LIMITED.found.limit", values});
    draft.fix.push_back({"POWER_LIMITED.fix", values});
  }
  const auto& reasons = device.throttle_reasons;
  if (std::ranges::find(reasons, "hw_power_brake_slowdown") != reasons.end()) {
    draft.found.push_back({"POWER_LIMITED.found.brake", {{"card", card_name(device)}}});
    draft.fix.push_back({"POWER_LIMITED.fix.brake", {}});
  }
  // The cap is the reason, yet the card hardly works: its sensor or its firmware hangs.
  const bool is_stuck = std::ranges::find(reasons, "sw_power_cap") != reasons.end() && device.clock_mhz > 0 &&
                        device.clock_mhz < device.clock_max_mhz / 4;
  if (is_stuck) {
    draft.found.push_back({"POWER_LIMITED.found.stuck",
                           {{"card", card_name(device)},
                            {"clock", std::to_string(device.clock_mhz)},
                            {"most", std::to_string(device.clock_max_mhz)},
                            {"power", number(device.power_w)},
                            {"limit", number(device.power_limit_w)}}});
    draft.fix.push_back({"POWER_LIMITED.fix.stuck", {}});
  }
  if (!draft.found.empty()) drafts.add(std::move(draft));
}

// The lanes as NVML has them, else as the bus has them.
std::pair<int, int> lanes(const DeviceFacts& device, const Facts& facts) {
  if (device.pcie_width > 0 && device.pcie_width_max > 0) return {device.pcie_width, device.pcie_width_max};
  const auto card = std::ranges::find(facts.pci_cards, device.pci_address, &PciCardFacts::address);
  return card == facts.pci_cards.end() ? std::pair(0, 0) : std::pair(card->link_width, card->link_width_max);
}

void find_few_lanes(const DeviceFacts& device, const Facts& facts, Drafts& drafts) {
  const auto [width, most] = lanes(device, facts);
  if (width <= 0 || width >= most) return;
  const Values values{{"card", card_name(device)}, {"width", std::to_string(width)}, {"most", std::to_string(most)}};
  drafts.add({.code = "NARROW_PCIE",
              .severity = Severity::warning,
              .found = {{"NARROW_PCIE.found", values}},
              .fix = {{"NARROW_PCIE.fix", {{"most", std::to_string(most)}}}}});
}

// What so many lanes carry, roughly: the rate doubles with each generation. GB/s.
double link_gbs(int generation, int width) {
  return width * std::ldexp(0.25, std::clamp(generation, 1, 8) - 1);
}

// A resting link sleeps in a low generation; only what copies then reach tells that it stays there.
void find_slow_link(const DeviceFacts& device, Drafts& drafts) {
  const int generation = device.pcie_generation, most = device.pcie_generation_max;
  if (generation <= 0 || generation >= most || device.pcie_width <= 0 || device.trial.to_card_gbs <= 0) return;
  if (device.trial.to_card_gbs > link_gbs(most, device.pcie_width) / 2) return;
  drafts.add({.code = "NARROW_PCIE",
              .severity = Severity::warning,
              .found = {{"NARROW_PCIE.found.generation",
                         {{"card", card_name(device)},
                          {"generation", std::to_string(generation)},
                          {"most", std::to_string(most)},
                          {"gbs", number(device.trial.to_card_gbs)}}}},
              .fix = {{"NARROW_PCIE.fix.generation", {}}}});
}

void find_failed_trial(const DeviceFacts& device, const Facts& facts, Drafts& drafts) {
  const TrialFacts& trial = device.trial;
  const bool by_driver = has_failed(trial.driver);
  // What fails through PyTorch on a card that PyTorch cannot use is explained already.
  const bool by_engine = has_failed(trial.engine) && !reason_beforehand(device, facts);
  if (!by_driver && !by_engine) return;
  const Outcome outcome = by_driver ? trial.driver : trial.engine;
  const char* ending = outcome == Outcome::crashed ? "crashed" : outcome == Outcome::timed_out ? "timed_out" : "failed";
  const bool lacks_memory = mentions(trial.error, "out of memory") || mentions(trial.error, "OUT_OF_MEMORY");
  drafts.add({.code = "TRIAL_FAILED",
              .severity = severity_of_card(device, facts),
              .found = {{fmt::format("TRIAL_FAILED.found.{}", ending),
                         {{"card", card_name(device)},
                          {"by", by_driver ? "CUDA" : "PyTorch"},
                          {"error", trial.error.empty() ? "-" : one_line(trial.error)}}}},
              .fix = {{lacks_memory ? "TRIAL_FAILED.fix.memory" : "TRIAL_FAILED.fix", {}}}});
}

void add_without_torch_kernels(const DeviceFacts& device, const Facts& facts, Drafts& drafts) {
  Values values = capability_values(device);
  values["version"] = facts.torch.version;
  values["built"] = torch_list(facts);
  Phrase fix{"CARD_NOT_IN_TORCH.fix.none", {}};
  const TorchPair* pair = best_pair(driver_major(facts), {capability_of(device)});
  if (pair && !facts.torch.version.starts_with(pair->torch)) {
    fix = {
        "CARD_NOT_IN_TORCH.fix.pair",
        {{"torch", std::string(pair->torch)}, {"cuda", std::string(pair->cuda)}, {"setup", std::string(pair->setup)}}};
  }
  drafts.add({.code = "CARD_NOT_IN_TORCH",
              .severity = severity_of_card(device, facts),
              .found = {{"CARD_NOT_IN_TORCH.found", values}},
              .fix = {fix}});
}

}  // namespace

std::optional<Phrase> reason_beforehand(const DeviceFacts& device, const Facts& facts) {
  Values values{{"capability", to_string(capability_of(device))}, {"least", to_string(kOldestCard)}};
  if (capability_of(device) < kOldestCard) return Phrase{"why_not.old", values};
  if (!has_reelgrad_kernels(device, facts)) {
    values["built"] = facts.build.architectures;
    return Phrase{"why_not.kernels", values};
  }
  if (device.mig == true && device.mig_instances == 0) return Phrase{"why_not.mig", {}};
  if (device.compute_mode == "prohibited") return Phrase{"why_not.prohibited", {}};
  if (const auto needed = missing_driver(facts.torch, facts))
    return Phrase{"why_not.driver", {{"needed", std::to_string(*needed)}}};
  const std::string_view problem = torch_problem(facts);
  if (problem == "TORCH_MISSING") return Phrase{"why_not.no_torch", {}};
  if (problem == "CPU_ONLY_BUILD") return Phrase{"why_not.cpu_torch", {}};
  if (problem == "TORCH_VERSION_MISMATCH")
    return Phrase{"why_not.other_torch", {{"version", facts.torch.version}, {"wanted", facts.build.torch}}};
  if (!problem.empty()) return Phrase{"why_not.unopenable", {}};
  if (!has_torch_kernels(device, facts)) {
    values["built"] = torch_list(facts);
    return Phrase{"why_not.torch_kernels", values};
  }
  return std::nullopt;
}

std::optional<Phrase> reason_against(const DeviceFacts& device, const Facts& facts) {
  if (auto reason = reason_beforehand(device, facts)) return reason;
  if (!has_failed(device.trial.driver) && !has_failed(device.trial.engine)) return std::nullopt;
  return Phrase{"why_not.trial", {{"error", device.trial.error.empty() ? "-" : one_line(device.trial.error)}}};
}

Severity severity_of_card(const DeviceFacts& device, const Facts& facts) {
  const bool another_runs = std::ranges::any_of(
      facts.devices, [&](const DeviceFacts& other) { return &other != &device && !reason_against(other, facts); });
  return another_runs ? Severity::warning : Severity::error;
}

void find_fallen_cards(const Facts& facts, Drafts& drafts) {
  std::vector<Phrase> found;
  for (const PciCardFacts& card : facts.pci_cards) {
    if (!card.answers) found.push_back({"FALLEN_OFF_BUS.found.reads", {{"address", card.address}}});
  }
  // A card that is used again came back with a restart of the driver: its error in the log is an old one.
  const bool misses_cards = facts.devices.empty() || facts.devices.size() < facts.pci_cards.size();
  const auto& xids = facts.modules.xids;
  if (misses_cards && std::ranges::find(xids, kXidFallenOff) != xids.end())
    found.push_back({"FALLEN_OFF_BUS.found.xid", {}});
  if (misses_cards && facts.driver.nvml_code == kNvmlGpuIsLost)
    found.push_back({"FALLEN_OFF_BUS.found.nvml", {{"code", std::to_string(kNvmlGpuIsLost)}}});
  if (found.empty()) return;
  drafts.add({.code = "FALLEN_OFF_BUS",
              .severity = facts.devices.empty() ? Severity::error : Severity::warning,
              .found = found,
              .fix = {{"FALLEN_OFF_BUS.fix", {}}}});
}

void find_cards_without_kernels(const Facts& facts, Drafts& drafts) {
  for (const DeviceFacts& device : facts.devices) {
    Values values = capability_values(device);
    if (capability_of(device) < kOldestCard) {
      values["least"] = to_string(kOldestCard);
      drafts.add({.code = "CARD_TOO_OLD",
                  .severity = severity_of_card(device, facts),
                  .found = {{"CARD_TOO_OLD.found", values}},
                  .fix = {{"CARD_TOO_OLD.fix", {}}}});
    } else if (!has_reelgrad_kernels(device, facts)) {
      values["built"] = facts.build.architectures;
      drafts.add({.code = "CARD_NOT_IN_BUILD",
                  .severity = severity_of_card(device, facts),
                  .found = {{"CARD_NOT_IN_BUILD.found", values}},
                  .fix = {{"CARD_NOT_IN_BUILD.fix", {}}}});
    }
    // Both lists may lack the card, and both must be mended; of a PyTorch that is exchanged anyway the list says
    // nothing.
    const bool judges_torch = capability_of(device) >= kOldestCard && torch_problem(facts).empty();
    if (judges_torch && !has_torch_kernels(device, facts)) add_without_torch_kernels(device, facts, drafts);
  }
}

void find_failed_trials(const Facts& facts, Drafts& drafts) {
  for (const DeviceFacts& device : facts.devices) find_failed_trial(device, facts, drafts);
}

void find_held_back_cards(const Facts& facts, Drafts& drafts) {
  for (const DeviceFacts& device : facts.devices) {
    find_heat(device, drafts);
    find_low_power(device, drafts);
    find_few_lanes(device, facts, drafts);
    find_slow_link(device, drafts);
  }
}

void find_shared_cards(const Facts& facts, Drafts& drafts) {
  for (const DeviceFacts& device : facts.devices) {
    const std::int64_t known = known_memory(device.processes);
    const bool all_known = knows_all_memory(device.processes);
    const std::vector<ProcessFacts> others = neighbours(device);
    // Where the driver does not say who uses how much, what is used in all stands for it.
    const std::int64_t shared = all_known ? known_memory(others) : std::max(known, device.memory_used_mb);
    if (!others.empty() && shared >= least_shared_mb(device)) {
      drafts.add({.code = "CARD_SHARED",
                  .severity = Severity::warning,
                  .found = {{"CARD_SHARED.found", {{"card", card_name(device)}, {"processes", process_list(others)}}}},
                  .fix = {{"CARD_SHARED.fix", {}}}});
    }
    if (!all_known || device.memory_used_mb < 0 || device.memory_used_mb - known < least_held_mb(device)) continue;
    drafts.add({.code = "MEMORY_HELD_INVISIBLY",
                .severity = Severity::warning,
                .found = {{"MEMORY_HELD_INVISIBLY.found",
                           {{"card", card_name(device)},
                            {"held", std::to_string(device.memory_used_mb - known)},
                            {"used", std::to_string(device.memory_used_mb)}}}},
                .fix = {{is_wsl(facts) ? "MEMORY_HELD_INVISIBLY.fix.wsl" : "MEMORY_HELD_INVISIBLY.fix", {}}}});
  }
}

void find_memory_errors(const Facts& facts, Drafts& drafts) {
  std::vector<Phrase> found;
  for (const DeviceFacts& device : facts.devices) {
    if (device.ecc_uncorrected <= 0) continue;
    found.push_back(
        {"ECC_ERRORS.found.count", {{"card", card_name(device)}, {"count", std::to_string(device.ecc_uncorrected)}}});
  }
  std::vector<int> errors;
  for (const int xid : facts.modules.xids) {
    if (std::ranges::find(kMemoryXids, xid) != std::end(kMemoryXids)) errors.push_back(xid);
  }
  if (!errors.empty()) found.push_back({"xids", {{"xids", fmt::format("{}", fmt::join(errors, ", "))}}});
  if (found.empty()) return;
  drafts.add({.code = "ECC_ERRORS", .severity = Severity::warning, .found = found, .fix = {{"ECC_ERRORS.fix", {}}}});
}

}  // namespace reelgrad
