#pragma once
#include <VapourSynth4.h>

namespace reelgrad::vs {

// core.reelgrad.Model(clip, model, …): the clip restored by a network, in its own format, scale times its size.
void register_model(VSPlugin* plugin, const VSPLUGINAPI* api);

}  // namespace reelgrad::vs
