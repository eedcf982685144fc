"""TemporalSPAN in PyTorch, for spandrel_reference.py: its convolutions are run one after another in training, and are
merged for evaluation only.

Sources: the paper of SPAN (Wan et al., 2023) for the blocks; traiNNer-redux, temporal_span_arch.py, for what surrounds
them and for the names of the weights.
"""
import copy

import torch
from torch import nn
from torch.nn import functional


class Conv3XC(nn.Module):
    def __init__(self, inputs, outputs, gain=2):
        super().__init__()
        self.sk = nn.Conv2d(inputs, outputs, 1)
        self.conv = nn.Sequential(
            nn.Conv2d(inputs, inputs * gain, 1),
            nn.Conv2d(inputs * gain, outputs * gain, 3),
            nn.Conv2d(outputs * gain, outputs, 1),
        )
        self.eval_conv = nn.Conv2d(inputs, outputs, 3, padding=1).requires_grad_(False)

    def train(self, mode=True):
        super().train(mode)
        if not mode:
            self.merge()
        return self

    @torch.no_grad()
    def merge(self):
        """An affine map of pictures is known by what it makes of each channel's single pixel, and of nothing."""
        inputs = self.sk.in_channels
        pictures = torch.zeros(inputs + 1, inputs, 5, 5, dtype=torch.float64, device=self.sk.weight.device)
        for channel in range(inputs):
            pictures[channel, channel, 2, 2] = 1
        sk, conv = copy.deepcopy(self.sk).double(), copy.deepcopy(self.conv).double()
        answers = conv(functional.pad(pictures, (1, 1, 1, 1))) + sk(pictures)
        bias = answers[-1, :, 2, 2]
        kernels = (answers[:-1, :, 1:4, 1:4] - bias[:, None, None]).flip(2, 3).transpose(0, 1)
        self.eval_conv.weight.copy_(kernels)
        self.eval_conv.bias.copy_(bias)

    def forward(self, x):
        if not self.training:
            return self.eval_conv(x)
        return self.conv(functional.pad(x, (1, 1, 1, 1))) + self.sk(x)


class Block(nn.Module):
    def __init__(self, features):
        super().__init__()
        for i in (1, 2, 3):
            setattr(self, f"c{i}_r", Conv3XC(features, features))
            setattr(self, f"norm{i}", nn.GroupNorm(8, features))

    def forward(self, x):
        inner = functional.silu(self.norm1(self.c1_r(x)))
        y = functional.silu(self.norm2(self.c2_r(inner)))
        y = self.norm3(self.c3_r(y))
        return (y + x) * (torch.sigmoid(y) - 0.5), inner


class TemporalSPAN(nn.Module):
    def __init__(self, channels, features, frame_features, scale, frames=5):
        super().__init__()
        self.middle = frames // 2
        self.center_conv = Conv3XC(channels, features)
        self.history_convs = nn.ModuleList(Conv3XC(channels, frame_features) for _ in range(frames - 1))
        self.fusion_conv = nn.Sequential(
            Conv3XC(features + frame_features * (frames - 1), features), Conv3XC(features, features)
        )
        for i in range(1, 7):
            setattr(self, f"block_{i}", Block(features))
        self.conv_cat = nn.Conv2d(features * 4, features, 1)
        self.conv_2 = Conv3XC(features, features)
        self.upsampler = nn.Sequential(
            nn.Conv2d(features, channels * scale**2, 3, padding=1), nn.PixelShuffle(scale)
        )

    def forward(self, clip):
        convs = list(self.history_convs)
        convs.insert(self.middle, self.center_conv)
        joined = self.fusion_conv(torch.cat([conv(clip[:, i]) for i, conv in enumerate(convs)], 1))
        after, inner, x = [], None, joined
        for i in range(1, 7):
            x, inner = getattr(self, f"block_{i}")(x)
            after.append(x)
        return self.upsampler(self.conv_cat(torch.cat([joined, self.conv_2(x), after[0], inner], 1)))


def network(state):
    features, channels = state["center_conv.sk.weight"].shape[:2]
    scale = round((len(state["upsampler.0.weight"]) / channels) ** 0.5)
    return TemporalSPAN(channels, features, len(state["history_convs.0.sk.weight"]), scale), scale
