#pragma once
#include "reelgrad/doctor/facts.h"

namespace reelgrad {

// Looks at this machine; all but `vapoursynth`, which the caller knows. Opens the driver's libraries and reads files;
// never libtorch or the CUDA runtime. Creates no context on a card. Never throws for what it does not find.
Facts probe_machine();

}  // namespace reelgrad
