#pragma once
#include "reelgrad/doctor/facts.h"

namespace reelgrad {

// Asks the Vulkan loader, in this process: a broken library takes it down, or holds it up.
VulkanFacts probe_vulkan();

}  // namespace reelgrad
