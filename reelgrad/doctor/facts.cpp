#include "reelgrad/doctor/facts.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "reelgrad/base/error.h"

namespace reelgrad {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(DeviceFacts, index, name, uuid, memory_total_mb, memory_free_mb,
                                                compute_major, compute_minor)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(TorchFacts, dir, version, cuda, error)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(VapourSynthFacts, core, api, vsscript, python, source_plugins, error)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Facts, os, kernel, pci_cards, driver_version, driver_cuda, driver_error,
                                                visible_devices, devices, torch, vapoursynth, ffmpeg_version,
                                                build_torch, build_architectures)

std::string facts_to_json(const Facts& facts) {
  // Names come from drivers and files: bytes that are no UTF-8 are replaced rather than refused.
  return nlohmann::json(facts).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Facts facts_from_json(const std::string& text) {
  try {
    return nlohmann::json::parse(text).get<Facts>();
  } catch (const nlohmann::json::exception& problem) {
    fail(fmt::format("this is no file of facts that `doctor --save-facts` wrote: {}", problem.what()));
  }
}

}  // namespace reelgrad
