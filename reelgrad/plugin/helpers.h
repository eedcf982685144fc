#pragma once
#include <VapourSynth4.h>

namespace reelgrad::vs {

// core.reelgrad.Version, Devices and Inspect: dicts about this installation, its cards and a model.
void register_helpers(VSPlugin* plugin, const VSPLUGINAPI* api);

}  // namespace reelgrad::vs
