#include "reelgrad/doctor/rules/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace reelgrad {
namespace {

constexpr std::size_t kLongestText = 400;
constexpr std::size_t kMostProcesses = 8;
constexpr int kDefaultDriver = 580;  // of the CUDA that reelgrad takes unless told otherwise

bool is_like(const SystemFacts& system, std::string_view id) {
  return system.os_id == id || (" " + system.os_like + " ").find(fmt::format(" {} ", id)) != std::string::npos;
}

std::string_view distribution(const SystemFacts& system) {
  if (is_like(system, "ubuntu")) return "ubuntu";
  if (is_like(system, "debian")) return "debian";
  if (is_like(system, "fedora") || is_like(system, "rhel")) return "fedora";
  if (is_like(system, "arch")) return "arch";
  return "other";
}

Phrase first_known(const std::string& key, const std::vector<std::string_view>& endings, Values values) {
  for (const std::string_view ending : endings) {
    std::string full = fmt::format("{}.{}", key, ending);
    if (has_phrase(full)) return {std::move(full), std::move(values)};
  }
  return {key, std::move(values)};
}

std::vector<std::string_view> endings_of(std::string_view distribution) {
  // Ubuntu is Debian where it has no sentence of its own.
  if (distribution == "ubuntu") return {"ubuntu", "debian", "other"};
  return {distribution, "other"};
}

}  // namespace

void Drafts::add(Draft draft) {
  const auto known = std::ranges::find(drafts_, draft.code, &Draft::code);
  if (known == drafts_.end()) {
    drafts_.push_back(std::move(draft));
    return;
  }
  known->severity = std::min(known->severity, draft.severity);
  known->found.insert(known->found.end(), draft.found.begin(), draft.found.end());
  for (Phrase& fix : draft.fix) {
    const bool said = std::ranges::any_of(
        known->fix, [&](const Phrase& phrase) { return phrase.key == fix.key && phrase.values == fix.values; });
    if (!said) known->fix.push_back(std::move(fix));
  }
}

bool is_wsl(const Facts& facts) {
  return facts.system.wsl > 0;
}

bool is_container(const Facts& facts) {
  return !facts.system.container.empty();
}

bool has_failed(Outcome outcome) {
  return outcome == Outcome::failed || outcome == Outcome::crashed || outcome == Outcome::timed_out;
}

bool is_card_node(const DeviceNodeFacts& node) {
  constexpr std::string_view kStart = "/dev/nvidia";
  return node.path.starts_with(kStart) && node.path.size() > kStart.size() &&
         std::isdigit(static_cast<unsigned char>(node.path[kStart.size()])) != 0;
}

bool knows_of_a_card(const Facts& facts) {
  return !facts.devices.empty() || !facts.pci_cards.empty() || facts.driver.nvml_cards > 0 ||
         facts.driver.mig_without_instance > 0 || facts.driver.compute_prohibited > 0 ||
         (is_wsl(facts) && facts.system.has_dxg) || std::ranges::any_of(facts.device_nodes, is_card_node);
}

bool has_no_devices(const Facts& facts) {
  return facts.devices.empty();
}

bool libcuda_opened(const Facts& facts) {
  return facts.driver.cuda > 0;
}

int driver_major(const Facts& facts) {
  return leading_number(facts.driver.version);
}

bool module_loaded(const Facts& facts) {
  return facts.modules.nvidia_loaded ||
         std::ranges::find(facts.pci_cards, "nvidia", &PciCardFacts::bound_driver) != facts.pci_cards.end();
}

std::optional<int> missing_driver(const TorchFacts& torch, const Facts& facts) {
  const auto least = least_driver(torch.cuda);
  if (!least) return std::nullopt;
  const int level = facts.driver.cuda / 1000, wanted = leading_number(torch.cuda);
  // A forward-compatibility package brings a newer libcuda than the driver's version says.
  const bool has_compat = facts.driver.library.find("compat") != std::string::npos;
  if (has_compat && level >= wanted) return std::nullopt;
  const int driver = driver_major(facts);
  if (driver > 0) return driver < *least ? least : std::nullopt;
  return level > 0 && level < wanted ? least : std::nullopt;
}

const std::string* variable(const Facts& facts, std::string_view name) {
  const auto found = facts.environment.find(std::string(name));
  return found == facts.environment.end() ? nullptr : &found->second;
}

std::vector<Capability> capabilities(const Facts& facts) {
  std::vector<Capability> cards;
  for (const DeviceFacts& device : facts.devices) cards.push_back(capability_of(device));
  return cards;
}

bool mentions(std::string_view text, std::string_view part) {
  const auto same = [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); };
  return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

std::string card_name(const DeviceFacts& device) {
  return fmt::format("cuda:{} ({})", device.index, one_line(device.name.empty() ? device.uuid : device.name));
}

std::string process_list(const std::vector<ProcessFacts>& processes) {
  std::vector<std::string> list;
  for (const ProcessFacts& process : processes) {
    if (list.size() == kMostProcesses) {
      list.push_back(fmt::format("… ({})", processes.size()));
      break;
    }
    list.push_back(fmt::format("pid {}{}{}{}", process.pid, process.name.empty() ? "" : " ", one_line(process.name),
                               process.used_mb < 0 ? "" : fmt::format(" {} MiB", process.used_mb)));
  }
  return fmt::format("{}", fmt::join(list, ", "));
}

std::string one_line(std::string_view text) {
  std::string line(text.substr(0, kLongestText));
  if (line.size() < text.size()) {
    // Not in the middle of a character.
    while (!line.empty() && (static_cast<unsigned char>(line.back()) & 0xC0) == 0x80) line.pop_back();
    if (!line.empty() && (static_cast<unsigned char>(line.back()) & 0x80) != 0) line.pop_back();
    line += "…";
  }
  std::ranges::replace_if(
      line, [](unsigned char c) { return c < ' '; }, ' ');
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::string number(double value) {
  return fmt::format("{:.4g}", value);
}

Phrase error_text(std::string_view error) {
  return {"error_text", {{"error", one_line(error)}}};
}

Phrase for_driver(const std::string& key, const Facts& facts, Values values) {
  std::vector<std::string_view> endings;
  if (is_wsl(facts)) endings.push_back("wsl");
  if (is_container(facts)) endings.push_back("container");
  if (endings.empty()) endings = endings_of(distribution(facts.system));
  endings.push_back("other");
  return first_known(key, endings, std::move(values));
}

Phrase for_distribution(const std::string& key, const Facts& facts, Values values) {
  return first_known(key, endings_of(distribution(facts.system)), std::move(values));
}

Phrase for_container(const std::string& key, const Facts& facts, Values values) {
  return is_container(facts) ? first_known(key, {"container"}, std::move(values)) : Phrase{key, std::move(values)};
}

Phrase install_driver(const Facts& facts, int least) {
  if (least <= 0) least = least_driver(facts.torch.cuda).value_or(kDefaultDriver);
  return for_driver("install_driver", facts, {{"driver", std::to_string(least)}});
}

}  // namespace reelgrad
