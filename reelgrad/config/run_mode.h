#pragma once

namespace reelgrad {

// How `train` treats its run folder: start needs a new one, resume goes on, fresh sets an older run aside.
enum class RunMode { start, resume, fresh };

}  // namespace reelgrad
