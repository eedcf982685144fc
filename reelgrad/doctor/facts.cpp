#include "reelgrad/doctor/facts.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "reelgrad/base/error.h"
#include "reelgrad/doctor/facts_json.h"

namespace reelgrad {
namespace {

using nlohmann::json;

// What differs from the defaults, so that a report shows what was found. Lists stay whole.
json without_defaults(const json& value, const json& defaults) {
  json kept = json::object();
  for (const auto& [key, inner] : value.items()) {
    const json& standard = defaults.at(key);
    if (inner == standard) continue;
    kept[key] =
        inner.is_object() && standard.is_object() && !standard.empty() ? without_defaults(inner, standard) : inner;
  }
  return kept;
}

}  // namespace

std::string facts_to_json(const Facts& facts) {
  json kept = without_defaults(json(facts), json(Facts{}));
  const auto shorten = [&](const char* list, const json& defaults) {
    if (!kept.contains(list)) return;
    for (json& entry : kept[list]) entry = without_defaults(entry, defaults);
  };
  shorten("pci_cards", PciCardFacts{});
  shorten("device_nodes", DeviceNodeFacts{});
  shorten("libraries", LibraryFacts{});
  shorten("devices", DeviceFacts{});
  // Names come from drivers and files: bytes that are no UTF-8 are replaced rather than refused.
  return kept.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

Facts facts_from_json(const std::string& text) {
  try {
    return json::parse(text).get<Facts>();
  } catch (const json::exception& problem) {
    fail(fmt::format("this is no file of facts that `doctor --save-facts` wrote: {}", problem.what()));
  }
}

}  // namespace reelgrad
