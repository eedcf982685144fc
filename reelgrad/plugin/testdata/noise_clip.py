"""A clip for tests: noise that is the same every time, with properties to be kept."""
import numpy as np
import vapoursynth as vs


def clip(format=vs.YUV420P8, length=4, width=40, height=24):
    def paint(n, f):
        f = f.copy()
        generator = np.random.default_rng(n)
        for plane in range(f.format.num_planes):
            values = np.asarray(f[plane])
            if f.format.sample_type == vs.FLOAT:
                np.copyto(values, generator.uniform(0, 0.5, values.shape).astype(values.dtype))
            else:
                top = 200 << (f.format.bits_per_sample - 8)
                np.copyto(values, generator.integers(top // 4, top, values.shape).astype(values.dtype))
        f.props["_Matrix"] = 0 if f.format.color_family == vs.RGB else 6
        if f.format.subsampling_w or f.format.subsampling_h:
            f.props["_ChromaLocation"] = 1
        f.props["_DurationNum"], f.props["_DurationDen"] = 1001, 24000
        f.props["Note"] = "frame %d" % n
        return f

    blank = vs.core.std.BlankClip(width=width, height=height, format=format, length=length)
    return vs.core.std.ModifyFrame(blank, blank, paint)
