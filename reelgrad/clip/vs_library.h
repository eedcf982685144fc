#pragma once
#include <VSScript4.h>
#include <VapourSynth4.h>

#include <filesystem>

namespace reelgrad {

// VapourSynth's embedding library, opened once a process and never closed.
struct VapourSynth {
  const VSSCRIPTAPI* script = nullptr;
  const VSAPI* api = nullptr;
  std::filesystem::path library;  // the libvsscript.so in use
  std::filesystem::path python;   // the interpreter of its environment; empty when not known
};

// Finds it in this order: $VSSCRIPT_PATH; the Python environment around this program; the activated environment; the
// environment reelgrad was built with; the system's library path. Throws (failed) saying where it looked and what to
// install. Not for use inside a VapourSynth plugin, whose host brings its own. Thread-safe.
const VapourSynth& vapoursynth();

}  // namespace reelgrad
