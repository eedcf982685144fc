"""PyTorch training a 4x network against a U-Net discriminator. Prints one line of JSON: {"it_per_s": …, "peak_bytes": …}.

The usual loop: autocast fp16, two GradScalers, Adam, an average of the weights, channels-first, losses read every step;
L1, VGG19's features before the activation (Real-ESRGAN's layers) and binary cross entropy of a discriminator with
spectral norm. peak_bytes: the most that tensors held at once on the card; 0 on the processor.

The batch is the same tensor again and again, already on the device: no loading, so this flatters PyTorch.

--write-vgg FILE writes random weights in the layout of torchvision's VGG19, and nothing else: time and memory do not
depend on their values."""
import argparse
import json
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import spectral_norm

from compact import Compact


class DenseBlock(nn.Module):
    def __init__(self, features, growth):
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv2d(features + i * growth, growth if i < 4 else features, 3, 1, 1) for i in range(5))

    def forward(self, x):
        seen = [x]
        for conv in self.convs[:-1]:
            seen.append(F.leaky_relu(conv(torch.cat(seen, 1)), 0.2, inplace=True))
        return x + 0.2 * self.convs[-1](torch.cat(seen, 1))


class ESRGAN(nn.Module):
    """ESRGAN's generator at 4x (Wang et al., 2018)."""

    def __init__(self, features, blocks, growth=32):
        super().__init__()
        self.first = nn.Conv2d(3, features, 3, 1, 1)
        self.trunk = nn.ModuleList(
            nn.Sequential(*(DenseBlock(features, growth) for _ in range(3))) for _ in range(blocks))
        self.body = nn.Conv2d(features, features, 3, 1, 1)
        self.ups = nn.ModuleList(nn.Conv2d(features, features, 3, 1, 1) for _ in range(2))
        self.hr, self.last = nn.Conv2d(features, features, 3, 1, 1), nn.Conv2d(features, 3, 3, 1, 1)

    def forward(self, x):
        first = x = self.first(x)
        for block in self.trunk:
            x = x + 0.2 * block(x)
        x = first + self.body(x)
        for up in self.ups:
            x = F.leaky_relu(up(F.interpolate(x, scale_factor=2, mode="nearest")), 0.2, inplace=True)
        return self.last(F.leaky_relu(self.hr(x), 0.2, inplace=True))


class UNetSN(nn.Module):
    """Real-ESRGAN's discriminator (Wang et al., 2021)."""

    def __init__(self, f=64):
        super().__init__()

        def conv(i, o, k, s):
            return spectral_norm(nn.Conv2d(i, o, k, s, 1, bias=False))

        self.conv0 = nn.Conv2d(3, f, 3, 1, 1)
        self.conv1, self.conv2, self.conv3 = conv(f, 2 * f, 4, 2), conv(2 * f, 4 * f, 4, 2), conv(4 * f, 8 * f, 4, 2)
        self.conv4, self.conv5, self.conv6 = conv(8 * f, 4 * f, 3, 1), conv(4 * f, 2 * f, 3, 1), conv(2 * f, f, 3, 1)
        self.conv7, self.conv8 = conv(f, f, 3, 1), conv(f, f, 3, 1)
        self.conv9 = nn.Conv2d(f, 1, 3, 1, 1)

    def forward(self, x):
        def act(t):
            return F.leaky_relu(t, 0.2, inplace=True)

        def up(t):
            return F.interpolate(t, scale_factor=2, mode="bilinear", align_corners=False)

        x0 = act(self.conv0(x))
        x1 = act(self.conv1(x0))
        x2 = act(self.conv2(x1))
        x3 = up(act(self.conv3(x2)))
        x4 = up(act(self.conv4(x3)) + x2)
        x5 = up(act(self.conv5(x4)) + x1)
        x6 = act(self.conv6(x5)) + x0
        return self.conv9(act(self.conv8(act(self.conv7(x6)))))


VGG19 = [64, 64, "M", 128, 128, "M", 256, 256, 256, 256, "M", 512, 512, 512, 512, "M", 512, 512, 512, 512, "M"]
WEIGHTS = {2: 0.1, 7: 0.1, 16: 1.0, 25: 1.0, 34: 1.0}  # conv1_2, conv2_2, conv3_4, conv4_4, conv5_4 in features


def vgg19_features():
    layers, channels = [], 3
    for width in VGG19:
        if width == "M":
            layers.append(nn.MaxPool2d(2, 2))
        else:
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
            channels = width
    return nn.Sequential(*layers)


class Perceptual(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = vgg19_features()[: max(WEIGHTS) + 1].requires_grad_(False)
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1))

    def of(self, x):
        x, found = (x - self.mean) / self.std, {}
        for i, layer in enumerate(self.features):
            x = layer(x)
            if i in WEIGHTS:
                found[i] = x.clone()  # the activation after it works in place
        return found

    def forward(self, prediction, target):
        ours, theirs = self.of(prediction), self.of(target.detach())
        return sum(weight * F.l1_loss(ours[i], theirs[i]) for i, weight in WEIGHTS.items())


def write_vgg(path):
    state = {f"features.{key}": value for key, value in vgg19_features().state_dict().items()}
    torch.save(state, path)


class Loop:
    def __init__(self, generator, x, y, device):
        self.half = device == "cuda"
        self.x, self.y, self.device = x, y, device
        self.generator, self.discriminator = generator, UNetSN().to(device)
        self.perceptual = Perceptual().to(device)
        self.g_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-4, betas=(0.9, 0.99))
        self.d_optimizer = torch.optim.Adam(self.discriminator.parameters(), lr=1e-4, betas=(0.9, 0.99))
        self.g_scaler = torch.amp.GradScaler(device, enabled=self.half)
        self.d_scaler = torch.amp.GradScaler(device, enabled=self.half)
        self.average = [p.detach().clone() for p in generator.parameters()]

    def autocast(self):
        return torch.autocast(self.device, torch.float16, enabled=self.half)

    def judged(self, x, label):
        logits = self.discriminator(x)
        return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, label))

    def step(self):
        self.discriminator.requires_grad_(False)
        self.g_optimizer.zero_grad()
        with self.autocast():
            fake = self.generator(self.x)
            losses = {"l1": F.l1_loss(fake, self.y), "perceptual": self.perceptual(fake, self.y),
                      "gan": 0.1 * self.judged(fake, 1.0)}
            total = sum(losses.values())
        self.g_scaler.scale(total).backward()
        self.g_scaler.step(self.g_optimizer)
        self.g_scaler.update()

        self.discriminator.requires_grad_(True)
        self.d_optimizer.zero_grad()
        for kind, pictures, label in ("real", self.y, 1.0), ("fake", fake.detach(), 0.0):
            with self.autocast():
                losses[kind] = self.judged(pictures, label)
            self.d_scaler.scale(losses[kind]).backward()
        self.d_scaler.step(self.d_optimizer)
        self.d_scaler.update()
        with torch.no_grad():
            for average, weight in zip(self.average, self.generator.parameters()):
                average.lerp_(weight, 0.001)
        return {name: loss.item() for name, loss in losses.items()}  # the usual loop logs every loss


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", choices=["compact", "esrgan"], default="compact")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--crop", type=int, default=64)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--convs", type=int, default=16)
    parser.add_argument("--blocks", type=int, default=23)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--write-vgg", metavar="FILE")
    args = parser.parse_args()
    if args.write_vgg:
        return write_vgg(args.write_vgg)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cudnn.benchmark = True
    generator = Compact(args.features, args.convs, 4) if args.arch == "compact" else ESRGAN(args.features, args.blocks)
    x = torch.rand(args.batch, 3, args.crop, args.crop, device=device)
    y = torch.rand(args.batch, 3, 4 * args.crop, 4 * args.crop, device=device)
    loop = Loop(generator.to(device), x, y, device)
    finish = torch.cuda.synchronize if device == "cuda" else lambda: None
    for _ in range(max(3, args.steps // 10)):
        loop.step()
    finish()
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    for _ in range(args.steps):
        loop.step()
    finish()
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else 0
    print(json.dumps({"it_per_s": args.steps / (time.perf_counter() - started), "peak_bytes": peak}))


if __name__ == "__main__":
    main()
