// Messages of the engine in VapourSynth's log. The engine outlives every core, so its sink knows none: a call into the
// engine says, for its thread, which core's log is meant.
#pragma once
#include <VapourSynth4.h>

#include "reelgrad/engine/engine.h"

namespace reelgrad::vs {

class EngineCall {
 public:
  EngineCall(VSCore* core, const VSAPI* api);
  EngineCall(const EngineCall&) = delete;
  EngineCall& operator=(const EngineCall&) = delete;
  ~EngineCall();
};

// The engine, with its messages going to the core of the current EngineCall. Throws as open_engine does.
Engine& engine();

}  // namespace reelgrad::vs
