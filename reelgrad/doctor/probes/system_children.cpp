#include "reelgrad/doctor/probes/system_children.h"

#include "reelgrad/doctor/facts_json.h"
#include "reelgrad/doctor/probes/device_nodes_probe.h"
#include "reelgrad/doctor/probes/mounts.h"
#include "reelgrad/doctor/probes/root_files.h"
#include "reelgrad/doctor/probes/vulkan_probe.h"

namespace reelgrad {
namespace {

// Names come from drivers: bytes that are no UTF-8 are replaced rather than refused.
std::string printed(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::string run_system_probe(const std::vector<std::string>& probe) {
  const RootFiles machine("/");
  const std::string name = probe.empty() ? "" : probe[0];
  if (name == "vulkan") return printed(probe_vulkan());
  if (name == "nodes") return printed({{"device_nodes", probe_device_nodes(machine, NodeCheck::opened)}});
  if (name != "folder" || probe.size() != 2) return "";
  SystemFacts facts;
  probe_run_folder(machine, probe[1], facts);
  return printed({{"run_file_system", facts.run_file_system}, {"run_free_mb", facts.run_free_mb}});
}

}  // namespace reelgrad
