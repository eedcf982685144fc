#pragma once
#include "reelgrad/engine/engine.h"

namespace reelgrad {

TimingResult time_network(const TimingRequest& request);

}  // namespace reelgrad
