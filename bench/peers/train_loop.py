"""PyTorch training Compact 2x. Prints one line of JSON: {"it_per_s": …}.

--variant usual  the usual loop: autocast fp16, GradScaler, Adam, channels-first, the loss read every step
--variant graph  bf16, channels_last, fused Adam, the whole step in one CUDA graph

The batch is the same tensor again and again, already on the device: no loading, so this flatters PyTorch."""
import argparse
import json
import time

import torch
from torch import nn
from torch.nn import functional as F

from compact import Compact


def usual_step(net, x, y, device):
    half = device == "cuda"
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-4)
    scaler = torch.amp.GradScaler(device, enabled=half)

    def step():
        optimizer.zero_grad()
        with torch.autocast(device, torch.float16, enabled=half):
            loss = F.l1_loss(net(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.item()  # the usual loop logs every loss

    return step


def graph_step(net, x, y):
    net.to(memory_format=torch.channels_last)
    x = x.contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-4, fused=True, capturable=True)

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            loss = F.l1_loss(net(x), y)
        loss.backward()
        optimizer.step()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variant", choices=["usual", "graph"], default="usual")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--crop", type=int, default=64)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--convs", type=int, default=16)
    parser.add_argument("--scale", type=int, default=2)
    parser.add_argument("--steps", type=int, default=300)
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cudnn.benchmark = True
    net = Compact(args.features, args.convs, args.scale).to(device)
    x = torch.rand(args.batch, 3, args.crop, args.crop, device=device)
    y = torch.rand(args.batch, 3, args.scale * args.crop, args.scale * args.crop, device=device)
    step = graph_step(net, x, y) if args.variant == "graph" else usual_step(net, x, y, device)
    finish = torch.cuda.synchronize if device == "cuda" else lambda: None
    for _ in range(max(3, args.steps // 10)):
        step()
    finish()
    started = time.perf_counter()
    for _ in range(args.steps):
        step()
    finish()
    print(json.dumps({"it_per_s": args.steps / (time.perf_counter() - started)}))


if __name__ == "__main__":
    main()
