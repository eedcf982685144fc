// Calls of the engine from VapourSynth's threads.
#pragma once
#include <VapourSynth4.h>

#include <memory>

#include "reelgrad/engine/engine.h"

namespace reelgrad::vs {

// Lives as long as a call. The engine outlives every core, so the sink of its messages knows none: a call says, for its
// thread, whose log is meant. Calls may lie within each other.
//
// A program may end while VapourSynth's threads work for it: an editor that is closed, a script that left frames
// behind. Then exit() would take torch apart under their hands. So the program's end waits for calls that have begun,
// and calls after that are refused: the constructor throws.
class EngineCall {
 public:
  EngineCall(VSCore* core, const VSAPI* api);
  EngineCall(const EngineCall&) = delete;
  EngineCall& operator=(const EngineCall&) = delete;
  ~EngineCall();

 private:
  VSCore* outer_core_;
  const VSAPI* outer_api_;
};

// The engine, with its messages going to the core of the current EngineCall. Throws as open_engine does.
Engine& engine();

// The end of the program is to come before that of libraries which have been opened until now.
void end_calls_first();

// Frees what the engine made, in this order, or leaves it to the system where the program is ending.
template <class... Made>
void close_all(VSCore* core, const VSAPI* api, std::unique_ptr<Made>&... made) noexcept {
  try {
    const EngineCall call(core, api);
    (made.reset(), ...);
  } catch (...) {
    (static_cast<void>(made.release()), ...);
  }
}

}  // namespace reelgrad::vs
