#pragma once
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "reelgrad/clip/window_reader.h"
#include "reelgrad/engine/engine.h"

namespace reelgrad::cli {

// All that decides what a clip's restored frames look like, name and value: two runs with the same give the same
// frames. Files stand there by what is in them: a model whole, a clip by its size and samples of it (a long film is
// gigabytes), a script by its text (what it opens is not followed), a folder of images by names, sizes and times.
std::vector<std::pair<std::string, std::string>> made_of(const RestoreRequest& restore, const RestorerSession& session,
                                                         const ClipArgument& clip, const WindowOptions& windows);

}  // namespace reelgrad::cli
