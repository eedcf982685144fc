#include "reelgrad/doctor/missing_card.h"

#include <fmt/format.h>

#include <algorithm>

#include "reelgrad/doctor/diagnose.h"
#include "reelgrad/doctor/probes/probes.h"

namespace reelgrad {
namespace {

ProbeOptions of_cards() {
  ProbeOptions options = probe_options();
  options.video = false;
  return options;
}

}  // namespace

std::string explained(const Error& error) {
  if (error.kind() != ErrorKind::no_device) return error.what();
  const ProbeOptions options = of_cards();
  const std::string reason = first_reason(probe_machine(options), language_from("", options.environment));
  return reason.empty() ? error.what() : fmt::format("{}. {}", error.what(), reason);
}

std::string why_card_is_left_out() {
  const ProbeOptions options = of_cards();
  ProbeOptions files_alone = options;
  files_alone.program.clear();  // at once: most machines without a usable card have none
  const Facts seen = probe_machine(files_alone);
  if (seen.pci_cards.empty() && seen.device_nodes.empty() && !seen.system.has_dxg) return "";
  const Facts facts = probe_machine(options);
  const bool usable =
      std::ranges::any_of(facts.devices, [&](const DeviceFacts& card) { return why_not(card, facts).empty(); });
  return !usable ? first_reason(facts, language_from("", options.environment)) : "";
}

}  // namespace reelgrad
