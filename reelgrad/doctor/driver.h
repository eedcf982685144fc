#pragma once
#include "reelgrad/doctor/facts.h"

namespace reelgrad {

// Fills the driver's part of the facts from libcuda.so.1 and libnvidia-ml.so.1. CUDA_VISIBLE_DEVICES counts, as it does
// for every CUDA program.
void probe_driver(Facts& facts);

struct CardProcess {
  int pid = 0;
  std::string name;           // empty: not known (another container's)
  std::int64_t used_mb = -1;  // -1: not known
};

// Who uses a card's memory, asked of NVML.
struct CardMemory {
  std::int64_t used_mb = -1;        // by everybody; -1: not known
  std::vector<CardProcess> others;  // but this process
};

// `uuid` as in DeviceFacts.
CardMemory probe_card_memory(const std::string& uuid);

}  // namespace reelgrad
