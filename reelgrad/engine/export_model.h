#pragma once
#include "reelgrad/engine/engine.h"

namespace reelgrad {

// Writes the model to request.output, in the format that its extension names. Throws failed, and usage for another
// extension.
void export_model(const ExportRequest& request);

}  // namespace reelgrad
