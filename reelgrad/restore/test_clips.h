// Training scripts for the tests of this folder and of engine/.
#pragma once

namespace reelgrad {

// Twelve frames of waves that move, 96x64 in RGB24, with a half-size input; frame 4 of the input fails when the
// variable `fail` is "yes".
inline constexpr const char* kWavesScript = R"(
import numpy as np
import vapoursynth as vs
core = vs.core
fail = globals().get("fail", "no") == "yes"
y, x = np.mgrid[0:64, 0:96]
def paint(n, f):
    f = f.copy()
    for p in range(3):
        wave = np.sin(x / (2.3 + p) + n) + np.cos(y / (1.7 + p) - n)
        np.copyto(np.asarray(f[p]), (wave * 50 + 128).astype(np.uint8))
    return f
def broken(n, f):
    if n == 4:
        raise ValueError("the tape is torn")
    return f
blank = core.std.BlankClip(width=96, height=64, format=vs.RGB24, length=12)
target = core.std.ModifyFrame(blank, blank, paint)
small = target.resize.Bicubic(48, 32)
target.set_output(0)
(core.std.ModifyFrame(small, small, broken) if fail else small).set_output(1)
)";

}  // namespace reelgrad
