"""Compact (Real-ESRGAN's SRVGGNetCompact) in PyTorch, for the programs beside it."""
from torch import nn
from torch.nn import functional as F


class Compact(nn.Module):
    def __init__(self, features, convs, scale):
        super().__init__()
        layers = [nn.Conv2d(3, features, 3, 1, 1), nn.PReLU(features)]
        for _ in range(convs):
            layers += [nn.Conv2d(features, features, 3, 1, 1), nn.PReLU(features)]
        layers.append(nn.Conv2d(features, 3 * scale * scale, 3, 1, 1))
        self.body, self.scale = nn.Sequential(*layers), scale

    def forward(self, x):
        return F.pixel_shuffle(self.body(x), self.scale) + F.interpolate(x, scale_factor=self.scale, mode="nearest")
