#pragma once
#include <vector>

#include "reelgrad/doctor/facts.h"
#include "reelgrad/doctor/probes/root_files.h"

namespace reelgrad {

// opened: by opening each, which asks the driver and, in a container, its permissions; a driver that hangs, hangs this:
// for a child process. by_mode: by owner and mode bits alone.
enum class NodeCheck { by_mode, opened };

// What CUDA opens: /dev/nvidia0…, nvidiactl, nvidia-uvm, and WSL's dxg.
std::vector<DeviceNodeFacts> probe_device_nodes(const RootFiles& files, NodeCheck check);

}  // namespace reelgrad
