#pragma once
#include "reelgrad/engine/engine.h"

namespace reelgrad {

// One run from its configuration to its last checkpoint. Fills `result` as far as it got; throws.
void train_session(const TrainRequest& request, Observer& observer, TrainResult& result);

}  // namespace reelgrad
