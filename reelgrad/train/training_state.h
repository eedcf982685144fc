// What a checkpoint holds of the networks that a run trains, so that it goes on bit for bit.
#pragma once
#include "reelgrad/train/recorder.h"
#include "reelgrad/train/training_parts.h"

namespace reelgrad {

// Fills in Snapshot::model, training and discriminator. Throws failed where a weight or a piece of state is not finite.
void put_training_state(Snapshot& snapshot, const TrainingParts& parts);

// Throws failed when the snapshot is not of these networks and optimizers. A run may take up a discriminator on its
// way; a memory plan that is asked for now is kept, else the one that the run had found is taken.
void restore_training_state(const Snapshot& snapshot, const TrainingParts& parts);

}  // namespace reelgrad
