"""PyTorch running a network whose weights it is given: spandrel's module, or one of its own for networks of several
frames. Prints one line of JSON: {"step_seconds": …, "picture_seconds": …}.

A step is trained as the community's trainers do it on a card: autocast fp16 with GradScaler, channels_last, fused AdamW,
op by op; without the average of weights that they keep, and with the same batch again and again, so this flatters
PyTorch. A picture is restored in fp16, channels_last, or under autocast where a module cannot work in fp16 throughout
(spandrel's SwinIR makes float32 masks). On the CPU both are float32."""
import argparse
import copy
import json
import runpy
import sys
import time
import types

import torch
from torch.nn import functional

WARM_UPS, MOST_RUNS = 5, 5000


def spandrel_network(file):
    """spandrel names functions of torchvision's for networks that are not timed here: without it they stay unknown."""
    try:
        import torchvision.transforms.functional  # noqa: F401
    except ImportError:
        for name in ("torchvision", "torchvision.transforms", "torchvision.transforms.functional"):
            sys.modules[name] = types.ModuleType(name)
        functions = sys.modules["torchvision.transforms.functional"]
        functions.InterpolationMode = functions.rotate = functions.normalize = None
    from spandrel import ModelLoader

    return ModelLoader(device="cpu").load_from_file(file).model


def own_network(file, script):
    state = torch.load(file, weights_only=True)["params"]
    network, _ = runpy.run_path(script)["network"](state)
    network.load_state_dict(state, strict=True)
    return network


def step_of(network, x, y):
    half = x.is_cuda
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-4, betas=(0.9, 0.99), weight_decay=0, fused=half)
    scaler = torch.amp.GradScaler(x.device.type, enabled=half)

    def step():
        optimizer.zero_grad()
        with torch.autocast(x.device.type, torch.float16, enabled=half):
            loss = functional.l1_loss(network(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def mean_seconds(work, device, least_seconds):
    def timed(runs):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        start = time.perf_counter()
        for _ in range(runs):
            work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - start

    for _ in range(WARM_UPS if device.type == "cuda" else 1):
        work()
    runs = int(min(max(least_seconds / max(timed(1), 1e-6), 1), MOST_RUNS))
    return timed(runs) / runs


def pictures(count, height, width, args):
    if args.window > 1:
        return torch.rand(count, args.window, args.channels, height, width, device=args.device)
    return torch.rand(count, args.channels, height, width, device=args.device)


def restorer_of(network, x):
    """The function that restores x."""
    if not x.is_cuda:
        return lambda: network(x)
    halved, picture = copy.deepcopy(network).to(dtype=torch.float16), x.half()
    try:
        with torch.inference_mode():
            halved(picture)
        return lambda: halved(picture)
    except RuntimeError as error:
        if "scalar type" not in str(error):
            raise

    def under_autocast():
        with torch.autocast("cuda", torch.float16):
            return network(x)

    return under_autocast


def laid_out(x):
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", help="a .pth file")
    parser.add_argument("--script", help="a file whose network(state) makes the module, in the place of spandrel")
    parser.add_argument("--device", type=torch.device, default="cpu")
    for name in ("batch", "crop", "width", "height", "channels", "window", "scale"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=1)
    args = parser.parse_args()
    if args.device.type == "cuda":
        torch.cuda.set_device(args.device)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    network = own_network(args.weights, args.script) if args.script else spandrel_network(args.weights)
    network.to(args.device, memory_format=torch.channels_last)

    for parameter in network.parameters():
        parameter.requires_grad_(parameter.is_floating_point())
    network.train()
    x = laid_out(pictures(args.batch, args.crop, args.crop, args))
    with torch.no_grad():
        y = torch.rand_like(network(x))
    times = {"step_seconds": mean_seconds(step_of(network, x, y), args.device, args.seconds)}

    for parameter in network.parameters():
        parameter.grad = None
    network.eval()
    restore = restorer_of(network, laid_out(pictures(1, args.height, args.width, args)))
    with torch.inference_mode():
        times["picture_seconds"] = mean_seconds(restore, args.device, args.seconds)
    print(json.dumps(times))


main()
