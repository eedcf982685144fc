// For tests: the beginning of scripts whose clips are noise.
#pragma once

namespace reelgrad::test {

// noisy(width, height, format, length): other noise in every frame, the same in every run; on the card when the
// variable `card` is "yes". Integers of every value; floats in [0, 1) or, with any_bits=True, of any bits (NaN among
// them).
inline constexpr const char* kNoiseScript = R"(
import numpy as np
import vapoursynth as vs
core = vs.core
def noisy(width, height, format, length, any_bits=False):
    def plane_of(random, f, shape, dtype):
        if f.sample_type == vs.FLOAT and not any_bits:
            return random.random(shape).astype(dtype)
        raw = random.integers(0, 256, (shape[0], shape[1] * dtype.itemsize), np.uint8).view(dtype)
        return raw if f.sample_type == vs.FLOAT else raw & ((1 << f.bits_per_sample) - 1)
    def paint(n, f):
        f = f.copy()
        random = np.random.default_rng(n)
        for p in range(f.format.num_planes):
            plane = np.asarray(f[p])
            np.copyto(plane, plane_of(random, f.format, plane.shape, plane.dtype))
        f.props["_Matrix"] = 0 if f.format.color_family == vs.RGB else 6
        return f
    blank = core.std.BlankClip(width=width, height=height, format=format, length=length, keep=1)
    clip = core.std.ModifyFrame(blank, blank, paint)
    return clip.std.GPUUpload() if globals().get("card", "no") == "yes" else clip
)";

}  // namespace reelgrad::test
