"""Networks that the programs beside this one train."""
from torch import nn
from torch.nn.utils import spectral_norm


class Compact(nn.Module):
    """That of small_network() in test_support.h."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.PReLU(4),
            nn.Conv2d(4, 4, 3, padding=1), nn.PReLU(4),
            nn.Conv2d(4, 12, 3, padding=1))

    def forward(self, x):
        return nn.functional.pixel_shuffle(self.body(x), 2) + nn.functional.interpolate(x, scale_factor=2, mode="nearest")


class UNetSN(nn.Module):
    """Real-ESRGAN's discriminator (Wang et al., 2021)."""

    def __init__(self, channels, features, skips=True):
        super().__init__()
        f, self.skips = features, skips
        self.conv0 = nn.Conv2d(channels, f, 3, 1, 1)
        shapes = [(f, 2 * f, 4, 2), (2 * f, 4 * f, 4, 2), (4 * f, 8 * f, 4, 2), (8 * f, 4 * f, 3, 1),
                  (4 * f, 2 * f, 3, 1), (2 * f, f, 3, 1), (f, f, 3, 1), (f, f, 3, 1)]
        for i, (inputs, outputs, kernel, stride) in enumerate(shapes, start=1):
            setattr(self, f"conv{i}", spectral_norm(nn.Conv2d(inputs, outputs, kernel, stride, 1, bias=False)))
        self.conv9 = nn.Conv2d(f, 1, 3, 1, 1)

    def layer(self, i, x):
        return nn.functional.leaky_relu(getattr(self, f"conv{i}")(x), 0.2)

    def forward(self, x):
        down = []
        for i in range(4):
            x = self.layer(i, x)
            down.append(x)
        for i in range(4, 7):
            x = nn.functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
            x = self.layer(i, x)
            if self.skips:
                x = x + down[6 - i]
        return self.conv9(self.layer(8, self.layer(7, x)))
