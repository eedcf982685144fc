"""Cases of filter_test, with the fake engine: filter_cases.py CASE PLUGIN [ARGUMENT...]. Prints "CASE ok"."""
import os
import sys

import numpy as np
import vapoursynth as vs

case, plugin, *arguments = sys.argv[1:]
core = vs.core
core.std.LoadPlugin(plugin)


def numbered(length, format=vs.GRAY8, step=10, width=16, height=8):
    """Frame n holds n * step, modulo 250 where it is no float."""
    blank = core.std.BlankClip(format=format, width=width, height=height, length=1)
    return core.std.Splice([core.std.BlankClip(blank, color=[n * step % 250] * blank.format.num_planes) for n in range(length)])


def with_cut(clip, frame, key="_SceneChangePrev"):
    """A cut between frame - 1 and frame."""
    marked = frame if key == "_SceneChangePrev" else frame - 1
    parts = [clip[n].std.SetFrameProps(**{key: 1}) if n == marked else clip[n] for n in range(clip.num_frames)]
    return core.std.Splice(parts)


def model(clip, spec="", **options):
    return core.reelgrad.Model(clip, spec or "identity", **options)


def values(clip, order=None):
    return {n: int(np.asarray(clip.get_frame(n)[0])[0, 0]) for n in (order or range(clip.num_frames))}


def calls():
    return int(core.reelgrad.Inspect("any")["calls"])


def error_of(action):
    try:
        action()
    except vs.Error as error:
        return str(error)
    raise AssertionError("no error")


def windows():
    ramp = numbered(10)
    assert list(values(model(ramp, "window=5")).values()) == [6, 12, 20, 30, 40, 50, 60, 70, 78, 84]
    mirrored = values(model(ramp, "window=5", window_ends="mirror"))
    assert (mirrored[0], mirrored[1], mirrored[9]) == (12, 14, 78), mirrored
    single = model(numbered(1), "window=7", window_ends="mirror")
    assert values(single) == {0: 0}


def cuts():
    for first, length in ((1, 10), (5, 10), (101, 120)):
        shots = core.std.BlankClip(format=vs.GRAY8, width=16, height=8, length=first) + core.std.BlankClip(
            format=vs.GRAY8, width=16, height=8, length=length - first, color=255)
        for key in ("_SceneChangePrev", "_SceneChangeNext"):
            restored = model(with_cut(shots, first, key), "window=5")
            assert restored.num_frames == length
            assert values(restored) == {n: 255 * (n >= first) for n in range(length)}, (first, key)
            blended = values(model(with_cut(shots, first, key), "window=5", scene_cuts=0))
            assert 0 < blended[first] < 255
        assert 0 < values(model(shots, "window=5"))[first] < 255


def recurrent_values(numbers):
    result = []
    for number in numbers:
        result.append(number if not result else (result[-1] + number) / 2)
    return result


def segments():
    ramp = with_cut(numbered(25), 14)
    expected = []
    for begin, end in ((0, 4), (4, 8), (8, 12), (12, 14), (14, 16), (16, 20), (20, 24), (24, 25)):
        expected += recurrent_values(range(10 * begin, 10 * end, 10))
    expected = {n: int(value + 0.5) for n, value in enumerate(expected)}

    def restored():
        return model(ramp, "window=4,recurrent=1,streams=2,sleep_ms=2")

    before = calls()
    assert {n: int(np.asarray(f[0])[0, 0]) for n, f in enumerate(restored().frames())} == expected
    assert calls() - before == 8, calls() - before
    backward = restored()
    assert values(backward, range(24, -1, -1)) == expected
    scattered = [(7 * n) % 25 for n in range(25)]
    assert values(restored(), scattered) == expected
    futures = {n: (clip := restored()).get_frame_async(n) for n in scattered}
    assert {n: int(np.asarray(f.result()[0])[0, 0]) for n, f in futures.items()} == expected
    core.max_cache_size = 1
    long = model(numbered(120, step=2), "window=60,recurrent=1")
    before = calls()
    assert values(long) == {n: int(v + 0.5) for n, v in enumerate(
        recurrent_values(range(0, 120, 2)) + recurrent_values(range(120, 240, 2)))}
    assert calls() - before == 2, calls() - before


def side_by_side():
    core.num_threads = 8
    ramp = numbered(24)
    for streams in (1, 3):
        out = model(ramp, "window=3,sleep_ms=20", streams=streams)
        futures = [out.get_frame_async(n) for n in range(24)]
        got = [int(np.asarray(future.result()[0])[0, 0]) for future in futures]
        assert got == [3] + list(range(10, 230, 10)) + [227], got
        assert int(core.reelgrad.Inspect("any")["most_at_once"]) == streams


CUSTOM = {"_DurationNum": 1001, "_DurationDen": 24000, "_SARNum": 4, "_SARDen": 3, "_FieldBased": 0, "_PictType": "B",
          "_AbsoluteTime": 1.5, "_Transfer": 1, "_Primaries": 1, "Note": "a", "Numbers": [1, 2, 3], "_SceneChangePrev": 0}
COLOR = ("_Matrix", "_Range", "_ChromaLocation")


def props():
    def check(source_format, out_format, source_color, expected):
        source = numbered(2, source_format).std.RemoveFrameProps(list(COLOR)).std.SetFrameProps(**CUSTOM, **source_color)
        out = model(source, "scale=2", format=out_format)
        assert out.format.id == out_format and (out.width, out.height) == (32, 16)
        found = dict(out.get_frame(0).props)
        assert {key: found.pop(key) for key in COLOR if key in found} == expected, (source_format, out_format, found)
        assert all(found[key] == value for key, value in CUSTOM.items()), found
        assert set(found) == set(source.get_frame(0).props) - set(COLOR)
        return out

    video = {"_Matrix": 9, "_Range": 0, "_ChromaLocation": 2}
    check(vs.YUV420P8, vs.YUV420P8, video, video)
    check(vs.YUV420P8, vs.YUV420P16, {}, {"_Matrix": 6, "_Range": 0, "_ChromaLocation": 0})
    check(vs.YUV420P8, vs.YUV444PS, video, {"_Matrix": 9, "_Range": 0})
    rgb = check(vs.YUV420P8, vs.RGB24, video, {"_Matrix": 0, "_Range": 1})
    rgb.resize.Bicubic(format=vs.YUV420P8, matrix=1).get_frame(0)
    yuv = check(vs.RGB24, vs.YUV420P10, {"_Matrix": 0, "_Range": 1}, {"_Matrix": 6, "_Range": 0, "_ChromaLocation": 0})
    yuv.resize.Bicubic(format=vs.RGB24).get_frame(0)
    check(vs.RGB24, vs.RGB24, {"_Matrix": 1}, {"_Matrix": 0, "_Range": 1})
    check(vs.GRAY8, vs.GRAY8, {"_Range": 1}, {"_Range": 1})
    check(vs.YUV444P8, vs.GRAY8, video, {"_Matrix": 6, "_Range": 0})
    overridden = model(numbered(1, vs.YUV420P8).std.SetFrameProps(_Matrix=5), matrix_in="709")
    assert overridden.get_frame(0).props["_Matrix"] == 1


def alpha():
    source = numbered(3, vs.YUV420P8)
    shape = numbered(3, vs.GRAY8, step=7)
    joined = core.std.ClipToProp(source, shape, prop="_Alpha")
    out = model(joined, "scale=2").get_frame(2)
    assert (out.props["_Alpha"].width, out.props["_Alpha"].height) == (32, 16)
    assert (np.asarray(out.props["_Alpha"][0]) == 14).all()
    assert (np.asarray(model(joined).get_frame(2).props["_Alpha"][0]) == 14).all()
    deeper = model(joined, format=vs.YUV420P16).get_frame(2).props["_Alpha"]
    assert deeper.format.id == vs.GRAY16 and (np.asarray(deeper[0]) == 14 * 257).all()
    strange = core.std.ClipToProp(source, numbered(3, width=20), prop="_Alpha")
    assert all("_Alpha" not in model(clip).get_frame(0).props for clip in (source, strange))
    first = values(model(joined, "window=3").std.PropToClip("_Alpha"))
    assert first == {0: 0, 1: 7, 2: 14}


def sigmas():
    source = numbered(4)
    assert values(model(source, "takes_sigma=1", sigma=5)) == {0: 5, 1: 15, 2: 25, 3: 35}
    assert values(model(source, "takes_sigma=1", sigma_clip=numbered(2, step=3))) == {0: 0, 1: 13, 2: 23, 3: 33}
    recurrent = model(source, "takes_sigma=1,window=2,recurrent=1", sigma_clip=numbered(4, step=3))
    assert values(recurrent) == {0: 0, 1: 5, 2: 26, 3: 31}, values(recurrent)


def errors():
    clip = numbered(4, vs.YUV420P8)
    odd = core.std.BlankClip(format=vs.YUV444P8, width=15, height=9, length=1)
    attempts = {
        'overlap is "-1", allowed: 0 to 65536 pixels, "auto" or "exact"': dict(overlap=-1),
        'overlap is "none"': dict(overlap="none"),
        "streams is 33, allowed: 0 to 32": dict(streams=33),
        "vram_mb is -1": dict(vram_mb=-1),
        "window is 5, allowed: 3": dict(spec="window=3", window=5),
        'window_ends is "wrap", allowed: "repeat" or "mirror"': dict(window_ends="wrap"),
        "scene_cuts is 2, allowed: 0 to 1": dict(scene_cuts=2),
        "strength is 1.5, allowed: 0 to 1": dict(strength=1.5),
        "strength is nan": dict(strength=float("nan")),
        "sigma is given, but this network takes no noise level": dict(sigma=3.0),
        "sigma is 256": dict(sigma=256),
        "sigma and sigma_clip are both given": dict(spec="takes_sigma=1", sigma=3, sigma_clip=numbered(4)),
        "sigma_clip is 8x8, allowed: the clip's size, 16x8": dict(sigma_clip=numbered(4, width=8)),
        "sigma_clip has another format": dict(sigma_clip=clip),
        "format is 12345": dict(format=12345),
        "format is %d" % vs.GRAY32: dict(format=vs.GRAY32),
        "format is YUV420P8, whose sides are multiples of 2 and 2": dict(clip=odd, format=vs.YUV420P8),
        'dither is "floyd", allowed: "none" or "ordered"': dict(dither="floyd"),
        "this network is fed up": dict(spec="refuses=1"),
        "gpu_output is 1, but the network runs on the CPU, allowed: 0": dict(gpu_output=1),
    }
    for said, options in attempts.items():
        message = error_of(lambda: model(**{"clip": clip, **options}))
        assert message.startswith("Model: " + said), message
    assert "does not take argument" in error_of(lambda: model(clip, windows=3))
    model(clip, "window=3", window=3, overlap=8, tile=256, vram_mb=2000, ensemble=1, dither="ordered")
    model(clip, overlap="exact", strength=0.5, scene_cuts=False)
    assert core.reelgrad.Inspect("any")["sessions"] == "0"


def metrics():
    a, b = numbered(3), numbered(3, step=0)
    marked = core.reelgrad.Metrics(a, b)
    found = marked.get_frame(2).props
    assert [round(found[key] - i, 4) for i, key in enumerate(("psnr_rgb", "psnr_y", "ssim_rgb", "ssim_y"))] == 4 * [
        round(20 / 255, 4)]
    assert values(marked) == values(a)
    assert error_of(lambda: core.reelgrad.Metrics(a, numbered(2))) == (
        "Metrics: clip a has 3 frames and clip b has 2, allowed: equally many")
    assert "one size for both" in error_of(lambda: core.reelgrad.Metrics(a, numbered(3, width=8)))
    assert error_of(lambda: core.reelgrad.Metrics(a, b, device="moon")) == "Metrics: device: not known"


def inspect():
    found = core.reelgrad.Inspect("any")
    assert found["kind"] == "fake" and found["nested"] == '{"a":[1,2]}' and "most_at_once" in found
    assert all(isinstance(value, str) for value in found.values())


def devices():
    found = core.reelgrad.Devices()
    lists = [value if isinstance(value, list) else [value] for value in found.values()]
    assert len({len(values) for values in lists}) == 1
    assert {"device", "name", "memory_mb", "compute_capability", "driver", "usable", "why_not"} <= set(found)


def failures():
    out = model(numbered(6), "window=3,fails=3,sleep_ms=5")
    for n in (0, 2, 4):
        out.get_frame(n)
    assert error_of(lambda: out.get_frame(3)) == "Model: frame 3: the tape is torn"
    several = model(numbered(8), "window=4,recurrent=1,fails=6")
    assert values(several, range(4)) == {0: 0, 1: 5, 2: 13, 3: 21}
    assert error_of(lambda: several.get_frame(5)) == "Model: frames 4 to 7: the tape is torn"

    def broken(n, f):
        if n == 2:
            raise ValueError("a scratch")
        return f

    scratched = model(core.std.ModifyFrame(numbered(9), numbered(9), broken), "window=4,recurrent=1")
    assert "a scratch" in error_of(lambda: scratched.get_frame(0))
    assert values(scratched, range(4, 8)) == {4: 40, 5: 45, 6: 53, 7: 61}


def little_memory():
    core.max_cache_size = 1
    source = numbered(40, vs.RGBS, step=0.02, width=320, height=180)
    out = model(source, "window=5,scale=2,streams=2")
    got = [round(float(np.asarray(f[0])[0, 0]) / 0.02, 3) for f in out.frames(close=True)]
    assert got == [0.6, 1.2] + list(range(2, 38)) + [37.8, 38.4], got


def leave():
    """A clip is left after so many frames, and the program ends while others are in flight."""
    left = int(arguments[0])
    out = model(numbered(50), "window=3,streams=2,sleep_ms=20")
    for n, _ in zip(range(left), out.frames()):
        assert n < left
    futures = [out.get_frame_async(n) for n in range(3, 50)]
    print("leave ok", flush=True)
    assert futures


def drop():
    """Clips are freed, and cores with them, while their frames are in flight."""
    for _ in range(20):
        out = model(numbered(50), "window=3,streams=2,sleep_ms=3")
        frames = [out.get_frame_async(n) for n in range(10)]
        del out, frames
    print(core.num_threads > 0)


globals()[case]()
if case != "leave":
    print(case, "ok")
