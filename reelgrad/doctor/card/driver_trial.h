#pragma once
#include <string>

#include "reelgrad/doctor/facts.h"

namespace reelgrad {

// Real work on the card `uuid` (as in DeviceFacts) through libcuda alone, in this process: allocates, copies to the
// card and back from pinned memory, runs a kernel, copies on the card, checks every word that comes back, and measures.
// Takes 512 MiB of the card where 1.5 GiB are free, else 128 MiB, and a second. Never throws: `error` has the
// function's name.
TrialFacts try_driver(const std::string& uuid);

}  // namespace reelgrad
