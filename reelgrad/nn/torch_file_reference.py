"""torch.save's own files, for torch_file_test.cpp.

usage: torch_file_reference.py write FOLDER              files to read, with what is in them as expected*.safetensors
       torch_file_reference.py check PTH SAFETENSORS     exit 1 when torch.load(weights_only=True) finds other weights
       torch_file_reference.py spandrel PTH SAFETENSORS  the same of spandrel, which must know the architecture
"""
import argparse
import collections
import datetime
import os
import pathlib
import pickle
import sys
import zipfile

import numpy
import safetensors.torch
import torch
from torch import nn


def every_kind():
    base = torch.arange(24.0).reshape(4, 6)
    tensors = collections.OrderedDict(
        whole=base,
        tied=base,
        strided=base.t(),
        offset=base[1:3, 2:5],
        every_other=base[:, ::2],
        repeated=torch.tensor([1.5, 2.5]).expand(3, 2),
        scalar=torch.tensor(2.5),
        empty=torch.zeros(0, 3),
        parameter=nn.Parameter(torch.randn(3, 2)),
        buffer_parameter=nn.Parameter(torch.randn(3), requires_grad=False),
        channels_last=torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
        not_finite=torch.tensor([float("nan"), float("inf"), -0.0]),
    )
    tensors["bool"] = torch.tensor([True, False, True])
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
                  torch.float32, torch.float64):
        tensors[str(dtype).removeprefix("torch.")] = torch.arange(5).to(dtype)
    return tensors


def plain(tensors):
    return {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}


def compact(value):
    """Keys as SRVGGNetCompact's, scale 2, 4 features, 1 convolution between the first and the last."""
    torch.manual_seed(value)
    return {"body.0.weight": torch.randn(4, 3, 3, 3), "body.0.bias": torch.randn(4), "body.1.weight": torch.rand(4),
            "body.2.weight": torch.randn(4, 4, 3, 3), "body.2.bias": torch.randn(4), "body.3.weight": torch.rand(4),
            "body.4.weight": torch.randn(12, 4, 3, 3), "body.4.bias": torch.randn(12)}


def prefixed(prefix, state):
    return {prefix + name: tensor for name, tensor in state.items()}


def wrappings():
    """The same weights, averaged ones where there are two kinds, as trainers save them."""
    raw, best = compact(1), compact(2)
    discriminator = prefixed("netD.", {"conv.weight": torch.randn(3)})
    return {
        "bare": best,
        "ordered": collections.OrderedDict(best),
        "params": {"params": best},
        "params_ema": {"params": raw, "params_ema": best},
        "params-ema": {"params-ema": best, "params": raw},
        "state_dict": {"epoch": 3, "state_dict": best, "optimizer": torch.optim.Adam(nn.Linear(2, 2).parameters()).state_dict()},
        "model_state_dict": {"model_state_dict": best, "loss": 0.5},
        "model": {"model": best},
        "generator": {"generator": best, "discriminator": {"conv.weight": torch.randn(3)}},
        "g": {"g": best, "d": {"conv.weight": torch.randn(3)}},
        "twice": {"model": {"state_dict": best}},
        "unknown": {"my_weights": best, "iter": 5},
        "module": {"params_ema": prefixed("module.", best)},
        "compiled": {"params": prefixed("_orig_mod.", best)},
        "both": prefixed("module._orig_mod.", best),
        "average": {"n_averaged": torch.tensor(5), **prefixed("module.", best)},
        "gan": {"state_dict": {**prefixed("netG.", best), **discriminator}},
        "generator_prefix": prefixed("generator.", best),
        "lightning": {"epoch": 1, "pytorch-lightning_version": "2.0.0", "callbacks": {}, "hyper_parameters": {"lr": 1e-4},
                      "state_dict": {**prefixed("model.", best), **prefixed("loss.", {"vgg.weight": torch.randn(3)})}},
        "scalars": {**best, "pro": 1, "none": None, "name": "é"},
    }


class Unknown:
    def __init__(self):
        self.text = "anything"


def with_objects():
    return {"params": compact(2), "args": argparse.Namespace(lr=1e-4, path=pathlib.PurePosixPath("a")),
            "when": datetime.datetime(2024, 1, 2), "lr": numpy.float64(0.5), "array": numpy.arange(4), "set": {1, 2},
            "frozen": frozenset([3]), "unknown": Unknown(), "device": torch.device("cpu"), "dtype": torch.float16,
            "size": torch.Size([2, 3]), "big": 1 << 80, "counts": collections.defaultdict(int, a=1), "bytes": b"abc",
            "generator_state": torch.get_rng_state(), "iter": 5000, "scale": 2, "note": "é", "fast": True}


class Calls:
    """Unpickles by calling `function`."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def malicious(marker):
    """Each creates the file `marker` when Python unpickles it."""
    touch = f"open({str(marker)!r}, 'w').close()"
    nested = Calls(eval, f"(lambda: {touch})()")
    return {
        "system": Calls(os.system, f"touch '{marker}'"),
        "exec": Calls(exec, touch),
        "beside": {"params": compact(2), "extra": Calls(eval, touch)},
        "instead": {"params": {**compact(2), "body.0.bias": Calls(eval, touch)}},
        "key": {Calls(eval, repr("params") + f" if {touch} is None else 0"): compact(2)},
        "nested": Calls(list, [Calls(tuple, [nested])]),
        "open": {"params": compact(2), "log": Calls(open, str(marker), "w")},
        # Of no list: a function that nobody thought of.
        "unlisted": {"params": compact(2), "extra": Calls(numpy.save, f"{marker}", 1)},
    }


def save_old(value, path):
    torch.save(value, path, _use_new_zipfile_serialization=False)


def rewritten(source, target, change, compression=zipfile.ZIP_STORED):
    """The archive with `change(name, content)` in place of every record's content."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", compression) as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))


def write(folder):
    tensors = every_kind()
    safetensors.torch.save_file(plain(tensors), folder / "expected.safetensors")
    safetensors.torch.save_file(plain(compact(2)), folder / "expected_compact.safetensors")
    for protocol in (2, 3, 4, 5):
        torch.save(tensors, folder / f"zip{protocol}.pth", pickle_protocol=protocol)
        torch.save(tensors, folder / f"old{protocol}.pth", pickle_protocol=protocol, _use_new_zipfile_serialization=False)
    for name, value in wrappings().items():
        torch.save(value, folder / f"wrapping_{name}.pth")
        save_old(value, folder / f"wrapping_{name}_old.pth")
    torch.save(with_objects(), folder / "objects.pth")
    save_old(with_objects(), folder / "objects_old.pth")

    for name in malicious("x"):
        proof = folder / f"proof_{name}"
        torch.save(malicious(proof)[name], folder / "proof.pth")
        try:
            torch.load(folder / "proof.pth", weights_only=False)
        except Exception:
            pass
        if not any(folder.glob(f"proof_{name}*")):
            sys.exit(f"{name} does no harm even where it should")
        torch.save(malicious(folder / "marker")[name], folder / f"malicious_{name}.pth")
        save_old(malicious(folder / "marker")[name], folder / f"malicious_{name}_old.pth")

    torch.save(nn.Sequential(nn.Linear(2, 2)), folder / "whole.pth")
    save_old({"model": nn.Linear(2, 2)}, folder / "whole_old.pth")
    torch.save([torch.ones(2)], folder / "list.pth")
    torch.save({"epoch": 3, "notes": {}}, folder / "nothing.pth")
    with open(folder / "pickle.pth", "wb") as file:
        pickle.dump({"a": numpy.ones(2)}, file)
    torch.save(compact(2), folder / "small.pth")
    save_old(compact(2), folder / "small_old.pth")
    rewritten(folder / "small.pth", folder / "big_endian.pth",
              lambda name, content: b"big" if name.endswith("byteorder") else content)
    rewritten(folder / "small.pth", folder / "deflated.pth", lambda name, content: content, zipfile.ZIP_DEFLATED)
    rewritten(folder / "small.pth", folder / "unaligned.pth", lambda name, content: content)
    rewritten(folder / "small.pth", folder / "short.pth",
              lambda name, content: content[:-4] if name.endswith("data/0") else content)
    with zipfile.ZipFile(folder / "other.pth", "w") as archive:
        archive.writestr("readme.txt", "hello")

    network = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.PixelShuffle(2)).eval()
    torch.jit.script(network).save(folder / "script.pth")
    picture = torch.rand(1, 3, 8, 10)
    safetensors.torch.save_file({"input": picture, "output": network(picture).detach()}, folder / "script.safetensors")
    torch.jit.script(nn.Sequential(nn.Conv2d(2, 5, 3))).save(folder / "strange_script.pth")


def bits(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8) if tensor.numel() else tensor


def compare(found, expected):
    if list(found) != list(expected):
        sys.exit(f"keys: {list(found)}, expected: {list(expected)}")
    for name, tensor in expected.items():
        theirs = found[name]
        if theirs.dtype != tensor.dtype or theirs.shape != tensor.shape or not torch.equal(bits(theirs), bits(tensor)):
            sys.exit(f"{name}: {theirs}, expected: {tensor}")


def main():
    command, path = sys.argv[1], pathlib.Path(sys.argv[2])
    if command == "write":
        write(path)
    elif command == "check":
        stored = torch.load(path, weights_only=True)
        if stored["note"] != "é" or stored.keys() != {"params", "note"}:
            sys.exit(f"beside the weights: {stored.keys()}")
        expected = safetensors.torch.load_file(sys.argv[3])
        compare({name: stored["params"][name] for name in expected}, expected)
        if len(stored["params"]) != len(expected):
            sys.exit("more weights than expected")
    elif command == "spandrel":
        import spandrel

        model = spandrel.ModelLoader(device="cpu").load_from_file(path)
        if model.architecture.id != "Compact" or model.scale != 2:
            sys.exit(f"{model.architecture.id}, scale {model.scale}")
        expected = safetensors.torch.load_file(sys.argv[3])
        state = model.model.state_dict()
        compare({name: state[name] for name in expected}, expected)


main()
