"""The usual PyTorch training loop of Compact 2x: autocast fp16, GradScaler, Adam, channels-first. Prints steps per second.

The batch is the same tensor again and again, already on the device: no loading, so this flatters the loop."""
import argparse
import time

import torch
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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--crop", type=int, default=64)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--convs", type=int, default=16)
    parser.add_argument("--steps", type=int, default=300)
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    half = device == "cuda"
    torch.backends.cudnn.benchmark = True
    net = Compact(args.features, args.convs, 2).to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-4)
    scaler = torch.amp.GradScaler(device, enabled=half)
    x = torch.rand(args.batch, 3, args.crop, args.crop, device=device)
    y = torch.rand(args.batch, 3, 2 * args.crop, 2 * args.crop, device=device)

    def step():
        optimizer.zero_grad()
        with torch.autocast(device, torch.float16, enabled=half):
            loss = F.l1_loss(net(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.item()  # the usual loop logs every loss

    for _ in range(max(3, args.steps // 10)):
        step()
    started = time.perf_counter()
    for _ in range(args.steps):
        step()
    print(args.steps / (time.perf_counter() - started))


if __name__ == "__main__":
    main()
