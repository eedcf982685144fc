// The trial: that work really runs on each card, and how fast. Each part runs in a child (probe_child.h): "trial UUID"
// through the driver alone, then "engine-trial UUID" through PyTorch.
#pragma once
#include <string>

#include "reelgrad/doctor/facts.h"
#include "reelgrad/doctor/probes/probes.h"

namespace reelgrad {

// What such a child prints: {"trial": TrialFacts, "under_load": DeviceFacts}, the latter as NVML tells right after the
// work, when clocks and link are not idle.
std::string trial_answer(const std::string& uuid, const TrialFacts& trial);

// Fills `trial` of the devices that nothing obvious keeps from working. What an idle card does not show is taken from
// under load: the link's generation and width, the clock, and reasons to slow down that are not everyday ones. At most
// 10 s a card; the engine's parts of several cards run side by side. Never throws.
void try_cards(Facts& facts, const ProbeOptions& options);

}  // namespace reelgrad
