#pragma once
#include <optional>

#include "reelgrad/clip/window.h"
#include "reelgrad/engine/engine.h"
#include "reelgrad/plugin/arguments.h"

namespace reelgrad::vs {

// VapourSynth's description of them.
extern const char* const kModelArguments;

// What core.reelgrad.Model was asked for.
struct ModelArguments {
  RestoreRequest request;
  VSVideoInfo input{};
  RestoreFormat format;    // of the input's size
  VSVideoFormat output{};  // format.output, as VapourSynth has it
  NodeHandle clip, sigma_clip;
  std::optional<int> window;  // that the network must have
  WindowEnds ends = WindowEnds::repeat;
  bool scene_cuts = true;
};

// Throws usage for whatever is wrong by itself, without the network.
ModelArguments model_arguments(const VSMap* in, VSCore* core, const VSAPI* api);

}  // namespace reelgrad::vs
