#pragma once
#include "reelgrad/doctor/facts.h"

namespace reelgrad {

// Fills the driver's part of the facts from libcuda.so.1 and libnvidia-ml.so.1. CUDA_VISIBLE_DEVICES counts, as it does
// for every CUDA program.
void probe_driver(Facts& facts);

}  // namespace reelgrad
