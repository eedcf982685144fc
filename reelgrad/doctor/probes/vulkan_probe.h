#pragma once
#include <string>

#include "reelgrad/doctor/facts.h"

namespace reelgrad {

// Opens the loader and, through it, every installed driver, which may crash: for a child process. ok: an instance was
// made, also where it has no device.
VulkanFacts probe_vulkan(const std::string& loader = "libvulkan.so.1");

}  // namespace reelgrad
