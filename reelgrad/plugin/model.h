#pragma once
#include <VapourSynth4.h>

namespace reelgrad::vs {

// core.reelgrad.Model(clip, model, …): the clip restored by a network, scale times its size, in its own format or
// another.
void register_model(VSPlugin* plugin, const VSPLUGINAPI* api);

}  // namespace reelgrad::vs
