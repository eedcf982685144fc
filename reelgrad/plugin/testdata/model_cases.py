"""Cases of plugin_test that need VapourSynth in Python: model_cases.py CASE PLUGIN FOLDER [ARGUMENT...].
Each prints what the test reads."""
import ctypes
import hashlib
import os
import sys

import numpy as np

case, plugin, folder, *arguments = sys.argv[1:]
if case == "torch_before":
    import torch  # noqa: F401
import vapoursynth as vs

from noise_clip import clip

core = vs.core
core.std.LoadPlugin(plugin)
model = os.path.join(folder, "model.safetensors")


def digest(frame):
    return hashlib.sha256(b"".join(np.asarray(frame[p]).tobytes() for p in range(frame.format.num_planes))).hexdigest()


def restored(source, **options):
    return core.reelgrad.Model(source, model, device="cpu", **options)


def make_model():
    """A Compact of 8 features and 2 convolutions, x2, with small random weights."""
    import json

    from safetensors.numpy import save_file

    generator = np.random.default_rng(1)
    shapes = {"body.0": (8, 3, 3, 3), "body.2": (8, 8, 3, 3), "body.4": (8, 8, 3, 3), "body.6": (12, 8, 3, 3)}
    tensors = {}
    for name, shape in shapes.items():
        tensors[name + ".weight"] = generator.normal(0, 0.05, shape).astype(np.float32)
        tensors[name + ".bias"] = generator.normal(0, 0.02, shape[:1]).astype(np.float32)
    for name in ("body.1", "body.3", "body.5"):
        tensors[name + ".weight"] = np.full(8, 0.25, np.float32)
    spec = {"version": 1, "arch": "compact", "scale": 2, "window": 1, "color": "rgb",
            "options": {"features": "8", "convs": "2"}}
    save_file(tensors, model, {"reelgrad": json.dumps(spec)})


def show_version():
    for key, value in core.reelgrad.Version().items():
        print(key, "=", value if isinstance(value, str) else value.decode(), sep="")
    print("torch mapped:", "libtorch" in open("/proc/self/maps").read())


def show_digest():
    print(digest(restored(clip()).get_frame(1)))
    if case == "torch_never":
        assert "torch" not in sys.modules
        return
    import torch

    print(float((torch.ones(3, 3) @ torch.ones(3, 3)).sum()))


def show_formats():
    for format in (vs.GRAY8, vs.GRAY16, vs.GRAYS, vs.RGB24, vs.RGB30, vs.RGBH, vs.RGBS, vs.YUV410P8, vs.YUV420P8,
                   vs.YUV420P10, vs.YUV422P16, vs.YUV444P12, vs.YUV444PH, vs.YUV420PS):
        source = clip(format, 1)
        out = restored(source)
        frame, before = out.get_frame(0), source.get_frame(0)
        assert out.format.id == source.format.id and (out.width, out.height) == (80, 48), format
        kept = all(frame.props[key] == before.props[key] for key in before.props)
        added = set(frame.props) - set(before.props)
        assert kept and added <= {"_Range"}, (dict(frame.props), dict(before.props))
        # The network's random weights are small: its picture stays near the nearest-neighbour enlargement.
        enlarged = np.repeat(np.repeat(np.asarray(before[0]).astype(float), 2, 0), 2, 1)
        top = 1 if format.name.endswith(("S", "H")) else 2 ** source.format.bits_per_sample
        assert np.abs(np.asarray(frame[0]).astype(float) - enlarged).mean() < 0.1 * top, format
    print("formats ok")


def show_orders():
    source = clip(length=12)
    forward = [digest(f) for f in restored(source).frames()]
    out = restored(source)
    backward = [digest(out.get_frame(n)) for n in reversed(range(12))][::-1]
    futures = [restored(source).get_frame_async(n) for n in (7, 3, 11, 0, 3)]
    scattered = [digest(future.result()) for future in futures]
    assert forward == backward and scattered == [forward[n] for n in (7, 3, 11, 0, 3)]
    assert len(set(forward)) == 12
    tiled = restored(source, tile=16)
    difference = np.abs(np.asarray(tiled.get_frame(0)[0]).astype(int) - np.asarray(out.get_frame(0)[0]))
    assert difference.max() <= 1
    print("orders ok")


def show_errors():
    variable = core.std.Splice([clip(), clip(width=48)], mismatch=True)
    deep = core.std.BlankClip(format=vs.GRAY32, length=1)
    cases = [lambda: restored(variable), lambda: restored(deep),
             lambda: core.reelgrad.Model(clip(), os.path.join(folder, "missing.safetensors")),
             lambda: core.reelgrad.Model(clip(), model, device="abacus"), lambda: restored(clip(), precision="fp16"),
             lambda: restored(clip(), precision="fp8"), lambda: restored(clip(), tile=-1),
             lambda: restored(clip(), overlap=-1), lambda: restored(clip(), matrix_in="sepia")]
    for number, attempt in enumerate(cases):
        try:
            attempt()
            print(number, "no error")
        except vs.Error as error:
            print(number, error)


def show_frame_error():
    source = clip()

    def fail(n, f):
        if n == 2:
            raise ValueError("the tape is torn")
        return f

    out = restored(core.std.ModifyFrame(source, source, fail))
    print(digest(out.get_frame(1)) == digest(restored(source).get_frame(1)))
    try:
        out.get_frame(2)
    except vs.Error as error:
        print(error)
    unconvertible = restored(core.std.SetFrameProps(source, _Matrix=8))
    try:
        unconvertible.get_frame(3)
    except vs.Error as error:
        print(error)


def show_card():
    """A clip in the card's memory gives what it gives from host memory, to a network on the card and on the CPU."""
    source = clip(width=72, height=40, length=8)
    messages = []
    core.add_log_handler(lambda level, message: messages.append(message))
    try:
        uploaded = core.std.GPUUpload(source)
        uploaded.std.GPUDownload().get_frame(0)
    except vs.Error as error:
        print("skipped:", error)
        return
    for device in ("cuda", "cpu"):
        expected = list(core.reelgrad.Model(source, model, device=device).frames())
        frames = list(core.reelgrad.Model(uploaded, model, device=device).frames())
        assert [digest(f) for f in frames] == [digest(f) for f in expected], device
        assert all(dict(a.props) == dict(b.props) for a, b in zip(frames, expected)), device
        on_host = any("Model: frames come through host memory" in message for message in messages)
        assert on_host == (device == "cpu"), messages
    print("card ok")


def show_refusal():
    ctypes.CDLL(arguments[0])
    try:
        restored(clip())
    except vs.Error as error:
        print(error)


def write_script():
    """A clip as a file for `apply`, and what the plugin makes of it as raw planes."""
    with open(os.path.join(folder, "source.vpy"), "w") as script:
        script.write("import sys\nsys.path.insert(0, %r)\n" % os.path.dirname(os.path.abspath(__file__)))
        script.write("from noise_clip import clip\nclip().set_output(0)\n")
    with open(os.path.join(folder, "plugin.raw"), "wb") as raw:
        for frame in restored(clip()).frames():
            for plane in range(3):
                raw.write(np.asarray(frame[plane]).tobytes())


if case in ("torch_before", "torch_after", "torch_never"):
    show_digest()
else:
    {"model": make_model, "version": show_version, "formats": show_formats, "orders": show_orders, "card": show_card,
     "errors": show_errors, "frame_error": show_frame_error, "refusal": show_refusal, "script": write_script}[case]()
