#pragma once
#include <vector>

#include "reelgrad/doctor/facts.h"
#include "reelgrad/doctor/probes/root_files.h"

namespace reelgrad {

// NVIDIA's display controllers, those for computing alone among them, by address. No driver is needed.
std::vector<PciCardFacts> probe_pci(const RootFiles& files);

}  // namespace reelgrad
