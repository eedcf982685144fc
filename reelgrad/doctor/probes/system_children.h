#pragma once
#include <string>
#include <vector>

namespace reelgrad {

// For run_probe of probe_child.h: what of the system may crash or hang. "vulkan" prints VulkanFacts, "nodes"
// {"device_nodes"}, "folder DIR" {"run_file_system", "run_free_mb"}. Empty for another name.
std::string run_system_probe(const std::vector<std::string>& probe);

}  // namespace reelgrad
