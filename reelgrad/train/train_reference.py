"""PyTorch as the reference of reference_test.cpp.

usage: train_reference.py FOLDER
FOLDER/cases.json lists the cases; FOLDER/{dtype}.safetensors holds the initial weights ("init.…") and the samples.
Writes FOLDER/{case}.out.safetensors: "losses" and "rates" a step, the final weights ("raw.…", "ema.…"); and
FOLDER/scaler.safetensors: the scale after each of the scripted steps of torch.amp.GradScaler.
"""
import json
import pathlib
import sys

import safetensors.torch
import torch
from torch import nn
from torch.optim import lr_scheduler as schedulers

torch.set_num_threads(1)


class Compact(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.PReLU(4),
            nn.Conv2d(4, 4, 3, padding=1), nn.PReLU(4),
            nn.Conv2d(4, 12, 3, padding=1))

    def forward(self, x):
        return nn.functional.pixel_shuffle(self.body(x), 2) + nn.functional.interpolate(x, scale_factor=2, mode="nearest")


def make_schedule(case, optimizer):
    warmup = case["warmup_steps"]
    ramp = schedulers.LinearLR(optimizer, 1 / warmup, 1, warmup - 1) if warmup else None
    if case["schedule"] == "cosine":
        cosine = schedulers.CosineAnnealingLR(optimizer, case["steps"] - warmup, case["min_lr"])
        return schedulers.SequentialLR(optimizer, [ramp, cosine], [warmup]) if warmup else cosine
    if case["schedule"] == "multistep":
        main = schedulers.MultiStepLR(optimizer, case["milestones"], case["gamma"])
    else:
        main = schedulers.ConstantLR(optimizer, 1.0, 0)
    return schedulers.ChainedScheduler([ramp, main]) if warmup else main


def loss_of(case, difference):
    if case["loss"] == "l1":
        return difference.abs().mean()
    return torch.sqrt(difference ** 2 + case["eps"] ** 2).mean()


def run(case, folder):
    data = safetensors.torch.load_file(folder / f"{case['dtype']}.safetensors")
    inputs, targets = data.pop("inputs"), data.pop("targets")
    network = Compact().to(inputs.dtype)
    network.load_state_dict({key.removeprefix("init."): value for key, value in data.items()})
    kind = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}[case["optimizer"]]
    optimizer = kind(network.parameters(), case["lr"], (case["beta1"], case["beta2"]), case["adam_eps"], case["weight_decay"])
    schedule = make_schedule(case, optimizer)
    ema = {key: value.clone() for key, value in network.state_dict().items()}
    samples = case["batch"] * case["accumulate"]
    losses, rates = [], []
    for step in range(case["steps"]):
        optimizer.zero_grad()
        total = 0
        for part in range(case["accumulate"]):
            first = step * samples + part * case["batch"]
            index = [(first + i) % len(inputs) for i in range(case["batch"])]
            loss = loss_of(case, network(inputs[index]) - targets[index]) / case["accumulate"]
            loss.backward()
            total += loss.item()
        if case["clip_norm"]:
            nn.utils.clip_grad_norm_(network.parameters(), case["clip_norm"])
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
        losses.append(total)
        for key, value in network.state_dict().items():
            ema[key].lerp_(value, 1 - case["ema"])
    out = {f"raw.{key}": value for key, value in network.state_dict().items()}
    out |= {f"ema.{key}": value for key, value in ema.items()}
    out |= {"losses": torch.tensor(losses, dtype=torch.float64), "rates": torch.tensor(rates, dtype=torch.float64)}
    safetensors.torch.save_file(out, folder / f"{case['name']}.out.safetensors")


def scaler_sequence(finite):
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=3)
    parameter = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([parameter], 0.0)
    scaler.scale(torch.ones(1))
    scales = []
    for good in finite:
        parameter.grad = torch.tensor([1.0 if good else float("inf")])
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return torch.tensor(scales)


def main(folder):
    request = json.loads((folder / "cases.json").read_text())
    for case in request["cases"]:
        run(case, folder)
    safetensors.torch.save_file({"scales": scaler_sequence(request["finite"])}, folder / "scaler.safetensors")


main(pathlib.Path(sys.argv[1]))
