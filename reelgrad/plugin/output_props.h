// What changes among a frame's properties where its format or size does. All others are the input's.
#pragma once
#include <VapourSynth4.h>

#include "reelgrad/clip/frame.h"
#include "reelgrad/engine/engine.h"

namespace reelgrad::vs {

// Says what the samples of a frame of `output` hold, as `color` decides it; `props` are those of its `input`. Pictures
// of RGB and gray have no place of chroma; a gray clip that stays one is given no matrix that it did not have.
void write_color_props(VSMap* props, const ColorProps& color, const VideoFormat& input, const VideoFormat& output,
                       const VSAPI* api);

// The frame's `_Alpha`, which is its input's: at the frame's size and depth. One that cannot be read goes.
void fit_alpha(VSFrame* frame, RestorerSession& session, VSCore* core, const VSAPI* api);

}  // namespace reelgrad::vs
