#pragma once
#include <VapourSynth4.h>

#include <memory>

#include "reelgrad/clip/gpu_input.h"
#include "reelgrad/engine/engine.h"
#include "reelgrad/plugin/vs_guard.h"

namespace reelgrad::vs {

// The clip's frames on the network's card; nullptr where they are in host memory, or, with `node` replaced, must come
// through it: the log then says why.
std::unique_ptr<GpuInput> input_on_card(NodeHandle& node, const RestorerSession& session, VSCore* core,
                                        const VSAPI* api);

}  // namespace reelgrad::vs
