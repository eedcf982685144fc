// What stands between a driver that is there and this process: WSL, containers, permissions, variables, modes.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <sstream>

#include "reelgrad/doctor/rules/rules.h"

namespace reelgrad {
namespace {

// Codes of the driver API and of NVML, as in their headers.
constexpr int kNoDevice = 100, kInvalidDevice = 101, kSystemNotReady = 802;
constexpr int kNvmlUnknownError = 999;

bool has_card_node(const Facts& facts) {
  return std::ranges::any_of(facts.device_nodes, is_card_node);
}

// What the device control group answers, where the file's own mode would allow it.
bool is_taken_away(const DeviceNodeFacts& node) {
  return !node.usable && mentions(node.error, "not permitted");
}

// --- containers

bool means_nothing(const std::string& value) {
  return value.empty() || value == "void" || value == "none";
}

bool lacks_compute(const std::string& capabilities) {
  return !capabilities.empty() && !mentions(capabilities, "compute") && !mentions(capabilities, "all");
}

// The variable with which the container asked for too little; null: it did not.
const char* asked_for_too_little(const Facts& facts) {
  const std::string* devices = variable(facts, "NVIDIA_VISIBLE_DEVICES");
  if (devices && means_nothing(*devices) && !has_card_node(facts)) return "NVIDIA_VISIBLE_DEVICES";
  const std::string* capabilities = variable(facts, "NVIDIA_DRIVER_CAPABILITIES");
  if (capabilities && lacks_compute(*capabilities) && !libcuda_opened(facts)) return "NVIDIA_DRIVER_CAPABILITIES";
  return nullptr;
}

bool host_has_a_card(const Facts& facts) {
  const std::string* asked = variable(facts, "NVIDIA_VISIBLE_DEVICES");
  return knows_of_a_card(facts) || module_loaded(facts) || (asked && !means_nothing(*asked));
}

Phrase start_with_card(const Facts& facts) {
  const std::string key = "CONTAINER_WITHOUT_RUNTIME.fix." + facts.system.container;
  return {has_phrase(key) ? key : "CONTAINER_WITHOUT_RUNTIME.fix.other", {}};
}

// --- CUDA_VISIBLE_DEVICES

std::vector<std::string> items(const std::string& list) {
  std::vector<std::string> found;
  std::istringstream stream(list);
  for (std::string item; std::getline(stream, item, ',');) {
    std::erase_if(item, [](unsigned char c) { return std::isspace(c) != 0; });
    found.push_back(item);
  }
  return found;
}

std::optional<long> whole_number(const std::string& text) {
  long value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole ? std::optional(value) : std::nullopt;
}

bool is_uuid(const std::string& item) {
  return item.starts_with("GPU-") || item.starts_with("MIG-");
}

// Cards of the machine, whatever the variable says; 0: not known.
long card_count(const Facts& facts) {
  if (facts.driver.nvml_cards > 0) return facts.driver.nvml_cards;
  return static_cast<long>(facts.pci_cards.size());
}

// CUDA takes the cards up to the first item that names none: the first decides whether there is any.
std::optional<Phrase> why_hidden(const std::string& value, const Facts& facts) {
  const Values values{{"value", one_line(value)}, {"count", std::to_string(card_count(facts))}};
  const auto list = items(value);
  if (list.empty() || list.front().empty()) return Phrase{"HIDDEN_BY_VISIBLE_DEVICES.found.empty", {}};
  const std::string& first = list.front();
  if (is_uuid(first)) {
    const bool was_asked = facts.driver.init_code == kNoDevice || facts.driver.init_code == kInvalidDevice;
    const bool has_reason = facts.driver.mig_without_instance > 0 || facts.driver.compute_prohibited > 0;
    if (was_asked && !has_reason) return Phrase{"HIDDEN_BY_VISIBLE_DEVICES.found.uuid", values};
    return std::nullopt;
  }
  const auto index = whole_number(first);
  if (!index) {
    // SLURM's word for a job that asked for no card.
    const bool is_word_for_none = first == "NoDevFiles" || first == "none" || first == "void";
    return Phrase{is_word_for_none ? "HIDDEN_BY_VISIBLE_DEVICES.found.none" : "HIDDEN_BY_VISIBLE_DEVICES.found.word",
                  values};
  }
  if (*index < 0) return Phrase{"HIDDEN_BY_VISIBLE_DEVICES.found.none", values};
  if (*index >= card_count(facts) && card_count(facts) > 0)
    return Phrase{"HIDDEN_BY_VISIBLE_DEVICES.found.index", values};
  return std::nullopt;
}

// The cards that the variable names: up to one that ends the list on purpose.
std::size_t named_cards(const std::string& value) {
  const auto list = items(value);
  const auto ends = [](const std::string& item) { return item.empty() || item.front() == '-'; };
  return static_cast<std::size_t>(std::ranges::find_if(list, ends) - list.begin());
}

// --- permissions

Phrase allow_access(const Facts& facts, const DeviceNodeFacts& node) {
  if (is_container(facts)) return {"DEVICE_PERMISSIONS.fix.container", {}};
  // "root:video 0660": the group may, so it is enough to be in it.
  const std::size_t colon = node.owner.find(':'), space = node.owner.find(' ');
  if (colon != std::string::npos && space != std::string::npos && colon < space) {
    const std::string group = node.owner.substr(colon + 1, space - colon - 1);
    const std::string mode = node.owner.substr(space + 1);
    const bool group_may = mode.size() >= 2 && (mode[mode.size() - 2] == '6' || mode[mode.size() - 2] == '7');
    if (group_may && !group.empty() && group != "root") return {"DEVICE_PERMISSIONS.fix.group", {{"group", group}}};
  }
  return {"DEVICE_PERMISSIONS.fix.mode", {}};
}

// --- modes

void find_mig(const Facts& facts, Drafts& drafts) {
  int count = has_no_devices(facts) ? facts.driver.mig_without_instance : 0;
  Severity severity = Severity::error;
  for (const DeviceFacts& device : facts.devices) {
    if (device.mig != true || device.mig_instances != 0) continue;
    ++count;
    severity = severity_of_card(device, facts);
  }
  if (count <= 0) return;
  drafts.add({.code = "MIG_WITHOUT_INSTANCE",
              .severity = severity,
              .found = {{"MIG_WITHOUT_INSTANCE.found", {{"count", std::to_string(count)}}}},
              .fix = {{"MIG_WITHOUT_INSTANCE.fix", {}}}});
}

void find_prohibited(const Facts& facts, Drafts& drafts) {
  int count = has_no_devices(facts) ? facts.driver.compute_prohibited : 0;
  Severity severity = Severity::error;
  for (const DeviceFacts& device : facts.devices) {
    if (device.compute_mode != "prohibited") continue;
    ++count;
    severity = severity_of_card(device, facts);
  }
  if (count <= 0) return;
  drafts.add({.code = "COMPUTE_PROHIBITED",
              .severity = severity,
              .found = {{"COMPUTE_PROHIBITED.found", {{"count", std::to_string(count)}}}},
              .fix = {{"COMPUTE_PROHIBITED.fix", {}}}});
}

void find_exclusive(const Facts& facts, Drafts& drafts) {
  for (const DeviceFacts& device : facts.devices) {
    if (!device.compute_mode.starts_with("exclusive")) continue;
    const bool refused = device.trial.driver == Outcome::failed || device.trial.engine == Outcome::failed;
    Draft draft{.code = "EXCLUSIVE_MODE", .severity = Severity::info, .fix = {{"EXCLUSIVE_MODE.fix", {}}}};
    Values values{{"card", card_name(device)}};
    if (!device.processes.empty()) {
      values["processes"] = process_list(device.processes);
      draft.found = {{"EXCLUSIVE_MODE.found.taken", values}};
    } else if (refused) {
      values["error"] = one_line(device.trial.error);
      draft.found = {{"EXCLUSIVE_MODE.found.refused", values}};
    } else {
      draft.found = {{"EXCLUSIVE_MODE.found.free", values}};
    }
    const bool is_taken = refused || (!device.processes.empty() && device.trial.driver != Outcome::ok);
    if (is_taken) draft.severity = severity_of_card(device, facts);
    drafts.add(std::move(draft));
  }
}

// --- nothing else explains it

std::vector<Phrase> unavailable_evidence(const Facts& facts) {
  std::vector<Phrase> found;
  if (!facts.pci_cards.empty()) found.push_back({"cards_on_bus", {{"count", std::to_string(facts.pci_cards.size())}}});
  found.push_back(facts.driver.error.empty() ? Phrase{"CARD_UNAVAILABLE.found.counts", {}}
                                             : error_text(facts.driver.error));
  if (const std::string* visible = variable(facts, "CUDA_VISIBLE_DEVICES"))
    found.push_back({"CARD_UNAVAILABLE.found.visible", {{"value", one_line(*visible)}}});
  if (!facts.driver.nvml_error.empty()) found.push_back(error_text(facts.driver.nvml_error));
  if (!facts.modules.xids.empty())
    found.push_back({"xids", {{"xids", fmt::format("{}", fmt::join(facts.modules.xids, ", "))}}});
  return found;
}

}  // namespace

void find_wsl_without_card(const Facts& facts, Drafts& drafts) {
  if (!is_wsl(facts) || facts.system.has_dxg || !has_no_devices(facts)) return;
  const std::string version = facts.system.wsl == 1 ? "wsl1" : "wsl2";
  drafts.add({.code = "WSL_NO_DXG",
              .found = {{"WSL_NO_DXG.found." + version, {{"kernel", facts.system.kernel}}}},
              .fix = {{"WSL_NO_DXG.fix." + version, {}}}});
}

void find_container_without_card(const Facts& facts, Drafts& drafts) {
  if (!is_container(facts) || !has_no_devices(facts) || !host_has_a_card(facts)) return;
  const Values values{{"container", facts.system.container}};
  const bool has_way = facts.system.container_has_nvidia_runtime || (libcuda_opened(facts) && has_card_node(facts)) ||
                       (is_wsl(facts) && libcuda_opened(facts));
  const char* name = asked_for_too_little(facts);
  if (has_way && !name) return;
  Draft draft{.code = "CONTAINER_WITHOUT_RUNTIME"};
  if (name) {
    draft.found = {
        {"CONTAINER_WITHOUT_RUNTIME.found.variable",
         {{"container", facts.system.container}, {"variable", name}, {"value", one_line(*variable(facts, name))}}}};
    draft.fix = {{"CONTAINER_WITHOUT_RUNTIME.fix.variable", {}}};
  } else {
    draft.found = {{"CONTAINER_WITHOUT_RUNTIME.found", values}};
  }
  draft.fix.push_back(start_with_card(facts));
  drafts.add(std::move(draft));
}

void find_lost_access(const Facts& facts, Drafts& drafts) {
  if (!is_container(facts) || !has_no_devices(facts)) return;
  const std::string& container = facts.system.container;
  Draft draft{.code = "GPU_ACCESS_LOST", .fix = {{"GPU_ACCESS_LOST.fix", {}}}};
  if (facts.driver.nvml_code == kNvmlUnknownError) {
    const std::string& error = facts.driver.nvml_error;
    draft.found.push_back({"GPU_ACCESS_LOST.found.nvml",
                           {{"code", std::to_string(kNvmlUnknownError)},
                            {"error", error.empty() ? "Unknown Error" : one_line(error)},
                            {"container", container}}});
  }
  for (const DeviceNodeFacts& node : facts.device_nodes) {
    // Without the runtime nothing was ever given.
    if (!is_taken_away(node) || !facts.system.container_has_nvidia_runtime) continue;
    draft.found.push_back({"GPU_ACCESS_LOST.found.node",
                           {{"path", node.path}, {"error", one_line(node.error)}, {"container", container}}});
    break;
  }
  if (!draft.found.empty()) drafts.add(std::move(draft));
}

void find_permissions(const Facts& facts, Drafts& drafts) {
  if (!has_no_devices(facts) || !knows_of_a_card(facts)) return;
  for (const DeviceNodeFacts& node : facts.device_nodes) {
    if (node.usable || (is_container(facts) && is_taken_away(node))) continue;
    drafts.add({.code = "DEVICE_PERMISSIONS",
                .found = {{"DEVICE_PERMISSIONS.found",
                           {{"path", node.path},
                            {"owner", node.owner.empty() ? "?" : node.owner},
                            {"error", node.error.empty() ? "Permission denied" : one_line(node.error)}}}},
                .fix = {allow_access(facts, node)}});
  }
}

void find_hidden_cards(const Facts& facts, Drafts& drafts) {
  const std::string* value = variable(facts, "CUDA_VISIBLE_DEVICES");
  if (!value || !knows_of_a_card(facts)) return;
  const Phrase fix{"HIDDEN_BY_VISIBLE_DEVICES.fix", {}};
  if (!has_no_devices(facts)) {
    if (named_cards(*value) <= facts.devices.size()) return;
    drafts.add({.code = "HIDDEN_BY_VISIBLE_DEVICES",
                .severity = Severity::warning,
                .found = {{"HIDDEN_BY_VISIBLE_DEVICES.found.some",
                           {{"value", one_line(*value)},
                            {"named", std::to_string(named_cards(*value))},
                            {"count", std::to_string(facts.devices.size())}}}},
                .fix = {fix}});
    return;
  }
  if (!libcuda_opened(facts)) return;
  if (const auto why = why_hidden(*value, facts))
    drafts.add({.code = "HIDDEN_BY_VISIBLE_DEVICES", .found = {*why}, .fix = {fix}});
}

void find_card_modes(const Facts& facts, Drafts& drafts) {
  find_mig(facts, drafts);
  find_prohibited(facts, drafts);
  find_exclusive(facts, drafts);
}

void find_unavailable_card(const Facts& facts, Drafts& drafts) {
  if (!has_no_devices(facts) || !knows_of_a_card(facts)) return;
  Draft draft{.code = "CARD_UNAVAILABLE", .found = unavailable_evidence(facts)};
  for (const PciCardFacts& card : facts.pci_cards) {
    if (card.bound_driver.empty() || card.bound_driver == "nvidia") continue;
    draft.found.push_back({"CARD_UNAVAILABLE.found.bound", {{"address", card.address}, {"driver", card.bound_driver}}});
    draft.fix = {{"CARD_UNAVAILABLE.fix.bound", {{"driver", card.bound_driver}}}};
  }
  if (facts.driver.init_code == kSystemNotReady) {
    draft.found.push_back({"CARD_UNAVAILABLE.found.fabric", {}});
    draft.fix.push_back({"CARD_UNAVAILABLE.fix.fabric", {}});
  }
  const bool lacks_nodes = module_loaded(facts) && facts.device_nodes.empty();
  if (lacks_nodes && !is_wsl(facts) && !is_container(facts)) {
    draft.found.push_back({"CARD_UNAVAILABLE.found.nodes", {}});
    draft.fix.push_back({"CARD_UNAVAILABLE.fix.nodes", {}});
  }
  draft.fix.push_back(for_driver("CARD_UNAVAILABLE.fix", facts));
  drafts.add(std::move(draft));
}

}  // namespace reelgrad
