"""TorchScript files for torchscript_test.cpp, written by PyTorch.

usage: torchscript_reference.py FOLDER
Writes FOLDER/NAME.pt for every network below; for those that reelgrad takes also FOLDER/NAME.safetensors with the
state_dict as state.*, the input, and the output in evaluation as PyTorch computes it.
"""
import pathlib
import sys

import safetensors.torch
import torch
from torch import nn


OFFSET = torch.ones(3, 1, 1)


def conv(inputs, outputs, stride=1):
    return nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1)


class Residual(nn.Module):
    """Scale 2. Top-level children: head, body, tail; between them two sums."""

    def __init__(self):
        super().__init__()
        self.head = conv(3, 8)
        self.body = nn.Sequential(conv(8, 8), nn.LeakyReLU(0.1), conv(8, 8))
        self.tail = conv(8, 12)

    def forward(self, x):
        features = self.head(x)
        features = features + self.body(features)
        enlarged = nn.functional.interpolate(x, scale_factor=2.0, mode="nearest")
        return nn.functional.pixel_shuffle(self.tail(features), 2) + enlarged


class Sized(nn.Module):
    """A number passes between the calls of its children: it can be cut after the number's last use only."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = conv(3, 8), conv(8, 8), conv(8, 3)

    def forward(self, x):
        height = x.size(2)
        x = self.a(x)
        x = x * float(height) / float(x.size(2))
        return self.c(self.b(x))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = conv(3, 3)
        self.second = self.first

    def forward(self, x):
        return self.second(self.first(x))


class Window(nn.Module):
    def __init__(self):
        super().__init__()
        self.merge = conv(9, 3)

    def forward(self, x):
        return self.merge(x.flatten(1, 2))


class Pooled(nn.Module):
    """Everything depends on everything."""

    def __init__(self):
        super().__init__()
        self.conv = conv(3, 3)

    def forward(self, x):
        return self.conv(x) * torch.mean(x, dim=[2, 3], keepdim=True)


class OnDevice(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = conv(3, 3)

    def forward(self, x):
        return self.conv(x) + torch.zeros([1], device=torch.device("cpu"))


class InFloat32(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = conv(3, 3)

    def forward(self, x):
        return self.conv(x).to(torch.float32)


class LooseTensor(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = conv(3, 3)
        self.offset = torch.ones(3, 1, 1)

    def forward(self, x):
        return self.conv(x) + self.offset


class Traced(nn.Module):
    """Tracing writes the tensor down in the code."""

    def __init__(self):
        super().__init__()
        self.conv = conv(3, 3)

    def forward(self, x):
        return self.conv(x) + OFFSET


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = conv(3, 3)

    def forward(self, x, y):
        return self.conv(x + y)


class Fixed(nn.Module):
    """Takes 96x96 alone, as what is traced with a view of one size does."""

    def __init__(self):
        super().__init__()
        self.conv = conv(3, 3)

    def forward(self, x):
        return self.conv(x.reshape(-1, 3, 96, 96))


class AllFrames(nn.Module):
    """A window of three frames in, the same three out, restored."""

    def __init__(self):
        super().__init__()
        self.conv = conv(3, 3)
        self.all_frames = True
        self.window = 3

    def forward(self, x):
        return self.conv(x.flatten(0, 1)).unflatten(0, [x.size(0), x.size(1)])


def frozen_first(network):
    network[0].weight.requires_grad_(False)
    return network


def taken():
    yield "sequential", nn.Sequential(conv(3, 8), nn.PReLU(8), conv(8, 12), nn.PixelShuffle(2)), (3,)
    yield "residual", Residual(), (3,)
    yield "sized", Sized(), (3,)
    yield "inplace", nn.Sequential(conv(3, 8), nn.LeakyReLU(0.1, inplace=True), conv(8, 3)), (3,)
    yield "batchnorm", nn.Sequential(conv(3, 8), nn.BatchNorm2d(8), conv(8, 3)), (3,)
    yield "dropout", nn.Sequential(conv(3, 8), nn.Dropout(0.5), conv(8, 3)), (3,)
    yield "tied", Tied(), (3,)
    yield "half-size", nn.Sequential(conv(3, 8, stride=2), conv(8, 12), nn.PixelShuffle(2)), (3,)
    yield "fixed-weight", frozen_first(nn.Sequential(conv(3, 8), conv(8, 3))), (3,)
    yield "half-precision", nn.Sequential(conv(3, 8), conv(8, 3)).half(), (3,)
    yield "window", Window(), (3, 3)
    yield "pooled", Pooled(), (3,)


def main(folder):
    torch.manual_seed(3)
    for name, network, sizes in taken():
        torch.jit.script(network).save(folder / f"{name}.pt")
        network.float().eval()
        x = torch.rand(2, *sizes, 12, 10)
        with torch.no_grad():
            tensors = {"input": x, "output": network(x)}
        tensors |= {f"state.{key}": value.clone() for key, value in network.state_dict().items()}
        safetensors.torch.save_file(tensors, folder / f"{name}.safetensors")

    for name, network in (("device", OnDevice()), ("float32", InFloat32()), ("loose-tensor", LooseTensor()),
                          ("two-inputs", TwoInputs()), ("fixed", Fixed()), ("all-frames", AllFrames()),
                          ("gray", nn.Sequential(conv(1, 1)))):
        torch.jit.script(network).save(folder / f"{name}.pt")
    torch.jit.freeze(torch.jit.script(nn.Sequential(conv(3, 3)).eval())).save(folder / "frozen.pt")
    torch.jit.trace(Traced(), torch.rand(1, 3, 8, 8)).save(folder / "traced-constant.pt")
    torch.save(conv(3, 3).state_dict(), folder / "state-dict.pt")
    torch.save(conv(3, 3).state_dict(), folder / "old-state-dict.pt", _use_new_zipfile_serialization=False)
    (folder / "text.pt").write_text("import torch\n")


main(pathlib.Path(sys.argv[1]))
