// Scene cuts from what the pictures show, for clips whose frames do not say.
#pragma once
#include <span>
#include <vector>

#include "reelgrad/kernels/picture_summary.h"

namespace reelgrad {

// Where a scene begins, [i]: between pictures i - 1 and i; the first is false. `pictures`: consecutive ones of a clip,
// without those that repeat the one before. A pure function of the pictures, in integers.
//
// Two pictures are compared by what of the stronger one's variance the other does not explain (one minus the squared
// correlation), after the best shift of a few cells: motion of the camera, fades, and lamps that go on and off explain
// each other; pictures of two scenes do not. A cut is where all of the three pictures before are unlike all of the
// three after, by more than neighbours around it are. One or two odd pictures between alike ones are a flash, and no
// cut; at either end of `pictures` a flash cannot be told from a cut, and is one.
std::vector<bool> detect_cuts(std::span<const PictureSummary* const> pictures);

}  // namespace reelgrad
