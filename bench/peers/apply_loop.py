"""PyTorch restoring YUV420P8 frames that lie in memory. Prints one line of JSON: {"fps": …}.

--make FILE         writes the network's weights and ends
--variant eager     half precision (float32 on the CPU), channels_last
--variant compile   the same through torch.compile(mode="max-autotune-no-cudagraphs")
--variant network   eager, the network alone on a tensor that stays where it is

On a card frames cross through pinned memory, in turns on two streams, and colour is converted there, inside of what is
compiled. Networks other than compact come from spandrel."""
import argparse
import json
import time

import torch
from torch import nn
from torch.nn import functional as F

from compact import Compact

KR, KB = 0.2126, 0.0722
KG = 1 - KR - KB


def network_of(args):
    torch.manual_seed(1)
    if args.arch == "compact":
        return Compact(args.features, args.convs, 2)
    if args.arch == "span":
        from spandrel.architectures.SPAN import SPAN
        return SPAN(num_in_ch=3, num_out_ch=3, upscale=2)
    from spandrel.architectures.PLKSR import RealPLKSR
    return RealPLKSR(upscaling_factor=2)


def merge_once(span, x):
    """spandrel's SPAN merges its kernels in every forward, in place, which torch.compile does not take."""
    with torch.no_grad():
        span(x)
    for module in span.modules():
        if hasattr(module, "update_params"):
            module.update_params = lambda: None
            module.to(memory_format=torch.channels_last)


class Restored(nn.Module):
    """Planes in, planes out."""

    def __init__(self, network, dtype):
        super().__init__()
        self.network, self.dtype = network, dtype

    def forward(self, y, uv):
        y = (y.to(self.dtype) - 16) / 219
        uv = F.interpolate((uv.to(self.dtype) - 128) / 224, scale_factor=2, mode="bilinear")
        cb, cr = uv[:, :1], uv[:, 1:]
        rgb = torch.cat([y + 2 * (1 - KR) * cr,
                         y - 2 * (1 - KB) * KB / KG * cb - 2 * (1 - KR) * KR / KG * cr,
                         y + 2 * (1 - KB) * cb], 1)
        rgb = self.network(rgb.contiguous(memory_format=torch.channels_last))
        r, g, b = rgb[:, :1], rgb[:, 1:2], rgb[:, 2:]
        y = KR * r + KG * g + KB * b
        uv = F.avg_pool2d(torch.cat([(b - y) / (2 * (1 - KB)), (r - y) / (2 * (1 - KR))], 1), 2)
        y = (y * 219 + 16).round().clamp(0, 255).to(torch.uint8)
        return y, (uv * 224 + 128).round().clamp(0, 255).to(torch.uint8)


class CardLoop:
    """Each turn uses its own stream and pinned memory; a turn's result is read before the turn comes again."""

    def __init__(self, function, height, width, turns=2):
        pinned = lambda *shape: torch.randint(0, 255, shape, dtype=torch.uint8).pin_memory()
        self.function = function
        self.inputs = [(pinned(1, 1, height, width), pinned(1, 2, height // 2, width // 2)) for _ in range(turns)]
        self.outputs = [(pinned(1, 1, 2 * height, 2 * width), pinned(1, 2, height, width)) for _ in range(turns)]
        self.streams = [torch.cuda.Stream() for _ in range(turns)]
        self.count = 0

    def frame(self):
        turn = self.count % len(self.streams)
        self.count += 1
        self.streams[turn].synchronize()
        with torch.cuda.stream(self.streams[turn]):
            planes = [plane.to("cuda", non_blocking=True) for plane in self.inputs[turn]]
            for restored, out in zip(self.function(*planes), self.outputs[turn]):
                out.copy_(restored, non_blocking=True)

    def finish(self):
        torch.cuda.synchronize()


class HostLoop:
    def __init__(self, function, height, width):
        self.function = function
        self.planes = (torch.randint(0, 255, (1, 1, height, width), dtype=torch.uint8),
                       torch.randint(0, 255, (1, 2, height // 2, width // 2), dtype=torch.uint8))

    def frame(self):
        self.function(*self.planes)

    def finish(self):
        pass


class NetworkLoop(HostLoop):
    def __init__(self, network, x):
        self.function, self.planes = network, (x,)

    def finish(self):
        if self.planes[0].is_cuda:
            torch.cuda.synchronize()


def rate(loop, seconds):
    for _ in range(3):
        loop.frame()
    loop.finish()
    frames, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        for _ in range(4):
            loop.frame()
        loop.finish() if isinstance(loop, NetworkLoop) else None
        frames += 4
    loop.finish()
    return frames / (time.perf_counter() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", choices=["compact", "span", "realplksr"], default="compact")
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--convs", type=int, default=16)
    parser.add_argument("--make")
    parser.add_argument("--variant", choices=["eager", "compile", "network"], default="eager")
    parser.add_argument("--width", type=int, default=1920)
    parser.add_argument("--height", type=int, default=1080)
    parser.add_argument("--seconds", type=float, default=5)
    args = parser.parse_args()
    network = network_of(args).eval()
    if args.make:
        torch.save(network.state_dict(), args.make)
        return
    card = torch.cuda.is_available()
    device, dtype = ("cuda", torch.float16) if card else ("cpu", torch.float32)
    network.to(device, dtype, memory_format=torch.channels_last)
    if args.arch == "span":
        merge_once(network, torch.rand(1, 3, 16, 16, device=device, dtype=dtype))
    function = Restored(network, dtype)
    if args.variant == "compile":
        function = torch.compile(function, mode="max-autotune-no-cudagraphs")
    with torch.inference_mode():
        if args.variant == "network":
            x = torch.rand(1, 3, args.height, args.width, device=device, dtype=dtype)
            loop = NetworkLoop(network, x.contiguous(memory_format=torch.channels_last))
        else:
            loop = (CardLoop if card else HostLoop)(function, args.height, args.width)
        print(json.dumps({"fps": rate(loop, args.seconds)}))


if __name__ == "__main__":
    main()
