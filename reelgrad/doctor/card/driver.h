#pragma once
#include "reelgrad/doctor/facts.h"

namespace reelgrad {

// Fills the driver's part of the facts and the devices from libcuda.so.1 and libnvidia-ml.so.1, in this process: a
// broken library takes it down, or holds it up. CUDA_VISIBLE_DEVICES counts, as it does for every CUDA program.
void probe_driver(Facts& facts);

// Who uses a card's memory, asked of NVML.
struct CardMemory {
  std::int64_t used_mb = -1;         // by everybody; -1: not known
  std::vector<ProcessFacts> others;  // but this process
};

// `uuid` as in DeviceFacts.
CardMemory probe_card_memory(const std::string& uuid);

}  // namespace reelgrad
