#pragma once
#include <torch/types.h>

#include "reelgrad/clip/frame.h"

namespace reelgrad {

// [N, C, H, W] to `scale` times the size by Catmull-Rom's bicubic filter, the picture mirrored at its border with the
// border's samples repeated: what VapourSynth's resize.Bicubic does by default. In float32 inside, of the input's type.
torch::Tensor enlarge_bicubic(const torch::Tensor& pictures, int scale);

// `from`, of one plane, at the size and in the format of `out`, a whole multiple of its size: a clip's alpha.
void enlarge_plane(const FrameView& from, const MutableFrameView& out);

}  // namespace reelgrad
