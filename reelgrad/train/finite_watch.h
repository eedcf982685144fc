// Ends a run whose numbers are not finite any more, naming the step and the tensor with which it began.
#pragma once
#include <cstdint>

#include "reelgrad/train/meter.h"
#include "reelgrad/train/training_parts.h"

namespace reelgrad {

// Of what was read back of the steps up to `last_step`, one of the generator's or the opponent's. A loss scale skips a
// step whose loss is not finite; without one, the first such step ends the run. `done_steps`: the last of them is run
// once more to find the tensor. Throws failed.
void check_losses(const TrainingParts& parts, const TrainedNetwork& trained, const LossMeter::Reading& reading,
                  std::int64_t last_step, std::int64_t done_steps);

// After each step, without waiting: throws failed when too many in a row were skipped.
void watch_scales(const TrainingParts& parts, std::int64_t done_steps);

}  // namespace reelgrad
