"""FastDVDnet in PyTorch, for spandrel_reference.py. It takes a clip with the noise level in each frame's last channel,
the same in all of them: the paper's network takes that map once.

Sources: the paper (Tassano et al., 2020), and its authors' repository, m-tassano/fastdvdnet, for the names of the weights.
"""
import torch
from torch import nn


class Layers(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.convblock = nn.Sequential(*layers)

    def forward(self, x):
        return self.convblock(x)


def conv_norm(inputs, outputs, **options):
    return [nn.Conv2d(inputs, outputs, 3, padding=1, **options), nn.BatchNorm2d(outputs), nn.ReLU()]


def pair(inputs, outputs):
    return Layers(*conv_norm(inputs, outputs), *conv_norm(outputs, outputs))


def up(inputs, outputs):
    return Layers(pair(inputs, inputs), nn.Conv2d(inputs, outputs * 4, 3, padding=1), nn.PixelShuffle(2))


class UNet(nn.Module):
    def __init__(self, channels, features):
        super().__init__()
        self.inc = Layers(*conv_norm(3 * (channels + 1), 90, groups=3), *conv_norm(90, features))
        self.downc0 = Layers(*conv_norm(features, 2 * features, stride=2), pair(2 * features, 2 * features))
        self.downc1 = Layers(*conv_norm(2 * features, 4 * features, stride=2), pair(4 * features, 4 * features))
        self.upc2 = up(4 * features, 2 * features)
        self.upc1 = up(2 * features, features)
        self.outc = Layers(*conv_norm(features, features), nn.Conv2d(features, channels, 3, padding=1))

    def forward(self, frames, noise_map):
        top = self.inc(torch.cat([part for frame in frames for part in (frame, noise_map)], 1))
        middle = self.downc0(top)
        bottom = self.downc1(middle)
        return frames[1] - self.outc(top + self.upc1(middle + self.upc2(bottom)))


class FastDVDnet(nn.Module):
    def __init__(self, channels, features):
        super().__init__()
        self.temp1 = UNet(channels, features)
        self.temp2 = UNet(channels, features)

    def forward(self, clip):
        noise_map = clip[:, 0, -1:]
        frames = list(clip[:, :, :-1].unbind(1))
        return self.temp2([self.temp1(frames[i : i + 3], noise_map) for i in range(3)], noise_map)


def network(state):
    channels = state["temp1.inc.convblock.0.weight"].shape[1] - 1
    return FastDVDnet(channels, len(state["temp1.inc.convblock.3.weight"])), 1
