#pragma once
#include <memory>
#include <string>

#include "reelgrad/engine/engine.h"

namespace reelgrad {

// Throws; engine.cpp translates. `device` as in RestoreRequest.
std::unique_ptr<MeterSession> open_meter_session(const std::string& device);

}  // namespace reelgrad
