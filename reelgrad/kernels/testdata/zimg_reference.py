"""Pictures converted by VapourSynth's resize (zimg), for kernels_test.

usage: zimg_reference.py FOLDER
Writes FOLDER/index.txt, one case a line:
    name direction family sample bits sw sh width height matrix full chromaloc filter
and per case the planes one after the other, rows packed: NAME.clip in the format named, and
    direction "to":   NAME.float (RGBS, or GRAYS), NAME.codes (RGB or GRAY of the clip's integer depth)
    direction "ycc":  NAME.float (YUV444PS), NAME.codes (YUV444 of the clip's integer depth: zimg's integer resampler)
    direction "from": NAME.float (RGBS), the source of NAME.clip; "dither": likewise, with ordered dither
    direction "back": NAME.float (YUV444PS), the source of NAME.clip
Integer formats have NAME.exact, too: the same by the formulas in double precision. Of "to" R'G'B' or Y' in [0, 1], of "ycc"
Y' in [0, 1] and chroma around 0, of the others NAME.clip's codes before rounding (and without the dither).
"""
import itertools
import pathlib
import sys

import numpy as np
import vapoursynth as vs

core = vs.core
folder = pathlib.Path(sys.argv[1])
random = np.random.default_rng(7)
FAMILY = {"gray": vs.GRAY, "rgb": vs.RGB, "yuv": vs.YUV}
SAMPLE = {"int": vs.INTEGER, "float": vs.FLOAT}
FILTER = {"bicubic": core.resize.Bicubic, "bilinear": core.resize.Bilinear}
index = []


def clip_of(format_, width, height, planes, **props):
    blank = core.std.BlankClip(format=format_, width=width, height=height, length=1)

    def fill(n, f):
        out = f.copy()
        for i, plane in enumerate(planes):
            np.asarray(out[i])[:] = plane
        for name, value in props.items():
            out.props[name] = value
        return out

    return core.std.ModifyFrame(blank, blank, fill)


def planes_of(clip):
    frame = clip.get_frame(0)
    return [np.array(np.asarray(frame[i])) for i in range(frame.format.num_planes)]


def write(path, planes):
    with open(path, "wb") as file:
        for plane in planes:
            file.write(np.ascontiguousarray(plane).tobytes())


def texture(width, height):
    """Smooth shapes, an edge and noise, in [0, 1]: what real pictures are made of, plus what they are not."""
    y, x = np.mgrid[0:height, 0:width]
    a, b, c = random.uniform(0.05, 0.5, 3)
    picture = 0.5 + 0.3 * np.sin(a * x + b * y) + 0.25 * (x * c > y) - 0.12 + random.normal(0, 0.08, x.shape)
    return np.clip(picture, 0, 1)


def codes(picture, bits, full, chroma):
    step = 1 << (bits - 8)
    low, high = (0, (1 << bits) - 1) if full else (16 * step, (240 if chroma else 235) * step)
    return np.round(low + picture * (high - low)).astype(np.uint8 if bits == 8 else np.uint16)


def samples(family, sample, bits, plane, picture, full):
    chroma = family == "yuv" and plane > 0
    if sample == "int":
        return codes(picture, bits, full, chroma)
    return (picture - 0.5 * chroma).astype(np.float16 if bits == 16 else np.float32)


# --- The formulas in double precision: H.273, and the kernels normalised to 1 at their taps, mirrored at the border ---

KR_KB = {1: (0.2126, 0.0722), 4: (0.30, 0.11), 5: (0.299, 0.114), 6: (0.299, 0.114), 7: (0.212, 0.087), 9: (0.2627, 0.0593)}


def bicubic(x):
    x = abs(x)  # Catmull-Rom
    return 1.5 * x**3 - 2.5 * x**2 + 1 if x < 1 else -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2 if x < 2 else 0.0


def bilinear(x):
    return max(0.0, 1 - abs(x))


def weights(size, places, stretch, kernel):
    """[places, size]: what sample k, whose centre is at k + 0.5, adds at each place."""
    shape, support = {"bicubic": (bicubic, 2), "bilinear": (bilinear, 1)}[kernel]
    matrix = np.zeros((len(places), size))
    for row, place in zip(matrix, places):
        taps = np.arange(np.floor(place - support * stretch) - 1, np.ceil(place + support * stretch) + 1) + 0.5
        values = np.array([shape((tap - place) / stretch) for tap in taps])
        for tap, value in zip(taps, values / values.sum()):
            while not 0 <= tap <= size:
                tap = -tap if tap < 0 else 2 * size - tap
            row[int(tap)] += value
    return matrix


def site(factor, at_first, at_last):
    """Where the first chroma sample lies, in luma samples from the edge."""
    return 0.5 if at_first else factor - 0.5 if at_last else factor / 2


def chroma_filter(plane, sw, sh, loc, kernel, up):
    for axis, log2, first, last in ((1, sw, loc in (0, 2, 4), False), (0, sh, loc in (2, 3), loc in (4, 5))):
        factor = 1 << log2
        if factor == 1:
            continue
        centre, size = site(factor, first, last), plane.shape[axis]
        if up:
            matrix = weights(size, [(i + 0.5 - centre) / factor + 0.5 for i in range(size * factor)], 1, kernel)
        else:
            matrix = weights(size, [i * factor + centre for i in range(size // factor)], factor, kernel)
        plane = np.moveaxis(np.tensordot(matrix, plane, (1, axis)), 0, axis)
    return plane


def scale_and_offset(bits, full, chroma):
    largest, step = (1 << bits) - 1, 1 << (bits - 8)
    return (largest if full else (224 if chroma else 219) * step), (128 * step if chroma else 0 if full else 16 * step)


def to_values(planes, family, bits, full):
    for i, plane in enumerate(planes):
        scale, offset = scale_and_offset(bits, full, family == "yuv" and i > 0)
        yield (plane.astype(np.float64) - offset) / scale


def to_ycc(rgb, matrix):
    kr, kb = KR_KB[matrix]
    luma = kr * rgb[0] + (1 - kr - kb) * rgb[1] + kb * rgb[2]
    return [luma, (rgb[2] - luma) / (2 * (1 - kb)), (rgb[0] - luma) / (2 * (1 - kr))]


def to_rgb(ycc, matrix):
    kr, kb = KR_KB[matrix]
    red, blue = ycc[0] + 2 * (1 - kr) * ycc[2], ycc[0] + 2 * (1 - kb) * ycc[1]
    return [red, (ycc[0] - kr * red - kb * blue) / (1 - kr - kb), blue]


def exact_values(direction, family, bits, sw, sh, matrix, full, loc, kernel, clip, floats):
    if direction in ("to", "ycc"):
        values = list(to_values(clip, family, bits, full))
        if family == "yuv":
            values[1:] = [chroma_filter(plane, sw, sh, loc, kernel, up=True) for plane in values[1:]]
        return to_rgb(values, matrix) if family == "yuv" and direction == "to" else values
    values = [plane.astype(np.float64) for plane in floats]
    if direction != "back" and family != "rgb":
        values = to_ycc(values, matrix)
    if family == "gray":
        values = values[:1]
    if family == "yuv":
        values[1:] = [chroma_filter(plane, sw, sh, loc, kernel, up=False) for plane in values[1:]]
    scales = [scale_and_offset(bits, full, family == "yuv" and i > 0) for i in range(len(values))]
    return [value * scale + offset for value, (scale, offset) in zip(values, scales)]


def case(direction, family, sample, bits, sw, sh, width, height, matrix, full, loc, kernel="bicubic", planes=None):
    name = f"{direction}-{family}{bits}{sample}-{sw}{sh}-{width}x{height}-m{matrix}-f{full}-c{loc}-{kernel}"
    resize = FILTER[kernel]
    format_ = core.query_video_format(FAMILY[family], SAMPLE[sample], bits, sw, sh)
    props = {"_Matrix": 0 if family == "rgb" else matrix, "_Range": full, "_ChromaLocation": loc}
    shapes = [(width, height)] + [(width >> sw, height >> sh)] * (0 if family == "gray" else 2)
    if direction in ("from", "dither"):
        floats = [texture(width, height).astype(np.float32) for _ in range(3)]
        source = clip_of(vs.RGBS, width, height, floats, _Matrix=0, _Range=1)
        wanted = {"matrix": matrix} if family != "rgb" else {}
        if family == "yuv":
            wanted["chromaloc"] = loc
        if direction == "dither":
            wanted["dither_type"] = "ordered"
        clip = resize(source, format=format_, range=full, **wanted)
    elif direction == "back":
        floats = [(texture(width, height) - 0.5 * (i > 0)).astype(np.float32) for i in range(3)]
        source = clip_of(vs.YUV444PS, width, height, floats, _Matrix=matrix)
        clip = resize(source, format=format_, range=full, chromaloc=loc)
    else:
        if planes is None:
            planes = [samples(family, sample, bits, i, texture(*shape), full) for i, shape in enumerate(shapes)]
        clip = clip_of(format_, width, height, planes, **props)
        if direction == "ycc":
            floats = planes_of(resize(clip, format=vs.YUV444PS))
            if sample == "int":
                integer = core.query_video_format(vs.YUV, vs.INTEGER, bits, 0, 0)
                write(folder / f"{name}.codes", planes_of(resize(clip, format=integer)))
        else:
            out = vs.GRAY if family == "gray" else vs.RGB
            floats = planes_of(resize(clip, format=core.query_video_format(out, vs.FLOAT, 32, 0, 0)))
            if sample == "int":
                integer = core.query_video_format(out, vs.INTEGER, bits, 0, 0)
                write(folder / f"{name}.codes", planes_of(resize(clip, format=integer, range=1)))
    written = planes_of(clip)
    write(folder / f"{name}.clip", written)
    if sample == "int":
        exact = exact_values(direction, family, bits, sw, sh, matrix, full, loc, kernel, written, floats)
        write(folder / f"{name}.exact", exact)
    write(folder / f"{name}.float", floats)
    index.append(f"{name} {direction} {family} {sample} {bits} {sw} {sh} {width} {height} {matrix} {full} {loc} {kernel}")


INTS = [("int", bits) for bits in (8, 9, 10, 12, 14, 16)]
FLOATS = [("float", 16), ("float", 32)]
for direction in ("to", "from"):
    for (sample, bits), full in itertools.product(INTS + FLOATS, (0, 1)):
        case(direction, "gray", sample, bits, 0, 0, 52, 36, 1, full, 0)
        case(direction, "rgb", sample, bits, 0, 0, 52, 36, 0, full, 0)
        case(direction, "yuv", sample, bits, 0, 0, 52, 36, 1, full, 0)
        case(direction, "yuv", sample, bits, 1, 1, 52, 36, 6, full, 0)
    for matrix, full in itertools.product((1, 4, 5, 6, 7, 9), (0, 1)):
        case(direction, "yuv", "int", 8, 0, 0, 48, 20, matrix, full, 0)
    for (sw, sh), loc in itertools.product([(1, 1), (1, 0), (0, 1), (2, 0), (2, 2)], range(6)):
        case(direction, "yuv", "int", 10, sw, sh, 64, 48, 9, 0, loc)
        case(direction, "yuv", "float", 32, sw, sh, 64, 48, 9, 0, loc)
for sw, sh in ((0, 0), (1, 1), (1, 0), (2, 2)):
    for bits in (8, 10, 16):
        case("ycc", "yuv", "int", bits, sw, sh, 60, 36, 1, 0, 0)
    case("ycc", "yuv", "float", 32, sw, sh, 60, 36, 1, 0, 1)
for sw, sh in ((0, 0), (1, 1), (1, 0), (2, 2)):
    case("back", "yuv", "int", 8, sw, sh, 60, 36, 1, 0, 0)
    case("back", "yuv", "float", 32, sw, sh, 60, 36, 1, 0, 1)
for (sw, sh), loc in itertools.product([(1, 1), (1, 0), (0, 1), (2, 0), (2, 2)], range(6)):
    for direction, (sample, bits) in itertools.product(("to", "from"), (("int", 8), ("float", 32))):
        case(direction, "yuv", sample, bits, sw, sh, 40, 24, 1, 0, loc, "bilinear")
for sw, sh in ((1, 1), (1, 0), (2, 2)):
    case("ycc", "yuv", "float", 32, sw, sh, 60, 36, 1, 0, 0, "bilinear")
    case("back", "yuv", "float", 32, sw, sh, 60, 36, 1, 0, 0, "bilinear")
for full in (0, 1):
    case("dither", "gray", "int", 8, 0, 0, 52, 36, 1, full, 0)
    case("dither", "rgb", "int", 8, 0, 0, 52, 36, 0, full, 0)
    case("dither", "yuv", "int", 8, 1, 1, 52, 36, 1, full, 0)
    case("dither", "yuv", "int", 10, 0, 0, 52, 36, 6, full, 0)
    for bits, size in ((8, 16), (10, 32), (16, 256)):  # every code
        ramp = np.arange(size * size).reshape(size, size)
        case("to", "gray", "int", bits, 0, 0, size, size, 1, full, 0, planes=[ramp])
case("to", "yuv", "int", 8, 1, 1, 2, 2, 1, 0, 0)
case("to", "yuv", "int", 8, 2, 2, 4, 4, 1, 0, 0)
case("to", "yuv", "int", 8, 1, 1, 6, 4, 1, 0, 1)
case("from", "yuv", "int", 8, 1, 1, 2, 2, 1, 0, 0)
case("from", "yuv", "int", 8, 1, 1, 6, 4, 1, 0, 1)
(folder / "index.txt").write_text("\n".join(index) + "\n")
