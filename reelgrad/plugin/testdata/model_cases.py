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
        if device == "cpu":
            continue
        # Frames made on the card, for filters there and brought down from it, several at once.
        for given in (uploaded, source):
            made = core.reelgrad.Model(given, model, device=device, gpu_output=1)
            down = list(made.std.GPUDownload().frames())
            assert [digest(f) for f in down] == [digest(f) for f in expected]
            assert all(dict(a.props) == dict(b.props) for a, b in zip(down, expected))
        again = core.reelgrad.Model(made, model, device=device).get_frame(3)
        assert digest(again) == digest(core.reelgrad.Model(core.reelgrad.Model(
            source, model, device=device), model, device=device).get_frame(3))
    print("card ok")


def show_conversions():
    """Other families out, with properties that a later conversion understands; alpha; another size of tiles."""
    source = clip(vs.YUV420P8, 1)
    rgb = restored(source, format=vs.RGBS)
    props = rgb.get_frame(0).props
    assert (props["_Matrix"], props["_Range"], "_ChromaLocation" in props) == (0, 1, False), dict(props)
    assert props["Note"] == "frame 0" and props["_DurationDen"] == 24000
    # Converting afterwards, by VapourSynth, gives the same as not converting: within a code.
    back = rgb.resize.Bicubic(format=vs.YUV420P8, matrix=6, range_s="limited", chromaloc_s="center")
    plain = restored(source)
    for p in range(3):
        ours, theirs = (np.asarray(f[p]).astype(int) for f in (plain.get_frame(0), back.get_frame(0)))
        inner = np.abs(ours - theirs)[4:-4, 4:-4]
        assert inner.max() <= 2 and inner.mean() < 0.3, (p, inner.max(), inner.mean())
    gray = restored(source, format=vs.GRAY16).get_frame(0)
    assert gray.props["_Matrix"] == 6 and "_ChromaLocation" not in gray.props
    assert np.abs(np.asarray(gray[0]) / 257 - np.asarray(plain.get_frame(0)[0])).max() <= 2

    alpha = clip(vs.GRAY8, 1)
    joined = core.std.ClipToProp(source, alpha, prop="_Alpha")
    enlarged = np.asarray(restored(joined).get_frame(0).props["_Alpha"][0]).astype(int)
    expected = np.asarray(alpha.std.SetFrameProps(_Range=1).resize.Bicubic(80, 48).get_frame(0)[0])
    assert enlarged.shape == expected.shape and np.abs(enlarged - expected).max() <= 1
    print("conversions ok")


def show_metrics():
    first, second = clip(vs.RGB24, 2), clip(vs.RGB24, 4)[2:]
    props = core.reelgrad.Metrics(first, second, device="cpu").get_frame(1).props
    a, b = (np.stack([np.asarray(c.get_frame(1)[p]).astype(float) for p in range(3)]) for c in (first, second))
    expected = 10 * np.log10(255 ** 2 / ((a - b) ** 2).mean())
    assert abs(props["psnr_rgb"] - expected) < 0.01, (props["psnr_rgb"], expected)
    luma = np.tensordot([65.481, 128.553, 24.966], (a - b) / 255 ** 2, 1)
    assert abs(props["psnr_y"] - 10 * np.log10(1 / (luma ** 2).mean())) < 0.01, props["psnr_y"]
    assert abs(props["ssim_rgb"]) < 0.2 and abs(props["ssim_y"]) < 0.2  # noise has no likeness
    same = core.reelgrad.Metrics(first, first, device="cpu").get_frame(1).props
    assert abs(same["ssim_rgb"] - 1) < 1e-6 and abs(same["ssim_y"] - 1) < 1e-6
    assert props["Note"] == "frame 1"
    inspected = core.reelgrad.Inspect(model)
    assert inspected["arch"] == "compact" and inspected["scale"] == "2", inspected
    print("metrics ok")


def leave():
    """The program ends while the network works."""
    out = restored(clip(width=320, height=180, length=50))
    for number, frame in enumerate(out.frames()):
        if number == int(arguments[0]):
            break
    futures = [out.get_frame_async(n) for n in range(10, 50)]
    print("leave ok", len(futures), flush=True)


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
     "conversions": show_conversions, "metrics": show_metrics, "leave": leave, "errors": show_errors, "frame_error": show_frame_error, "refusal": show_refusal, "script": write_script}[case]()
