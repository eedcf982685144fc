#pragma once
#include "reelgrad/doctor/facts.h"
#include "reelgrad/doctor/probes/root_files.h"

namespace reelgrad {

// Distribution, kernel, WSL, container, C and C++ libraries, secure boot, memory and limits: all but the run folder.
SystemFacts probe_system(const RootFiles& files, const Environment& environment);

// Its parts.
void probe_container(const RootFiles& files, const Environment& environment, SystemFacts& facts);  // and WSL
void probe_limits(const RootFiles& files, SystemFacts& facts);  // control group, ulimits, /dev/shm

}  // namespace reelgrad
