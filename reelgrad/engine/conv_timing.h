#pragma once
#include <string>
#include <vector>

#include "reelgrad/engine/engine.h"

namespace reelgrad {

// Throws; engine.cpp translates. See Engine::time_convolutions.
std::vector<ConvTiming> time_convolutions(const std::string& device);

}  // namespace reelgrad
