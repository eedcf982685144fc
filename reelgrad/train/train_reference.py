"""PyTorch as the reference of reference_test.cpp and updater_reference_test.cpp.

usage: train_reference.py FOLDER
FOLDER/cases.json lists the cases; FOLDER/{dtype}.safetensors holds the initial weights ("init.…") and the samples.
Writes FOLDER/{case}.out.safetensors: "losses" and "rates" a step, the final weights ("raw.…"; schedule-free's averaged
ones as "x.…") and those of each moving average under its name; and FOLDER/scaler.safetensors: the scale after each of
the scripted steps of torch.amp.GradScaler.
"""
import functools
import json
import multiprocessing
import pathlib
import sys
import warnings

import lion_pytorch
import safetensors.torch
import schedulefree
import torch
from torch import nn
from torch.optim import lr_scheduler as schedulers

from reference_networks import Compact

torch.set_num_threads(1)
warnings.filterwarnings("ignore", module="torch.optim.lr_scheduler")  # SequentialLR's own call is "deprecated"


def make_optimizer(case, parameters):
    lr, decay, betas = case["lr"], case["weight_decay"], (case["beta1"], case["beta2"])
    match case["optimizer"]:
        case "adamw":
            return torch.optim.AdamW(parameters, lr, betas, case["adam_eps"], decay)
        case "adam":
            return torch.optim.Adam(parameters, lr, betas, case["adam_eps"], decay)
        case "sgd":
            return torch.optim.SGD(parameters, lr, case["momentum"], weight_decay=decay, nesterov=case["nesterov"])
        case "lion":
            return lion_pytorch.Lion(parameters, lr, betas, decay)
        case "schedule_free_adamw":
            return schedulefree.AdamWScheduleFree(parameters, lr, betas, case["adam_eps"], decay)


def make_schedule(case, optimizer):
    warmup, length = case["warmup_steps"], case["steps"] - case["warmup_steps"]
    ramp = schedulers.LinearLR(optimizer, 1 / warmup, 1, warmup - 1) if warmup else None
    match case["schedule"]:
        case "onecycle":
            return schedulers.OneCycleLR(
                optimizer, case["lr"], case["steps"], pct_start=case["rise"], cycle_momentum=False,
                div_factor=case["start_divisor"], final_div_factor=case["end_divisor"])
        case "cosine":
            main = schedulers.CosineAnnealingLR(optimizer, length, case["min_lr"])
            return schedulers.SequentialLR(optimizer, [ramp, main], [warmup]) if warmup else main
        case "linear":
            main = schedulers.LinearLR(optimizer, 1, case["min_lr"] / case["lr"], length)
            return schedulers.SequentialLR(optimizer, [ramp, main], [warmup]) if warmup else main
        case "multistep":
            main = schedulers.MultiStepLR(optimizer, case["milestones"], case["gamma"])
        case "constant":
            main = schedulers.ConstantLR(optimizer, 1.0, 0)
    return schedulers.ChainedScheduler([ramp, main]) if warmup else main


def loss_of(case, difference):
    if case["loss"] == "l1":
        return difference.abs().mean()
    if case["loss"] == "mse":
        return (difference ** 2).mean()
    return torch.sqrt(difference ** 2 + case["eps"] ** 2).mean()


class Average:
    def __init__(self, settings, network):
        self.settings = settings
        self.weights = {key: value.clone() for key, value in network.state_dict().items()}

    def update(self, network, updates):
        if updates % self.settings["every"]:
            return
        decay = self.settings["decay"]
        if self.settings["warmup"]:
            decay = min(decay, (1 + updates) / (10 + updates))
        for key, value in network.state_dict().items():
            self.weights[key].lerp_(value, 1 - decay)


def clip(case, network):
    if case["clip_norm"]:
        nn.utils.clip_grad_norm_(network.parameters(), case["clip_norm"])
    if case["clip_value"]:
        nn.utils.clip_grad_value_(network.parameters(), case["clip_value"])


@functools.cache
def samples_and_weights(file):
    return safetensors.torch.load_file(file)


def run(folder, case):
    data = dict(samples_and_weights(folder / f"{case['dtype']}.safetensors"))
    inputs, targets = data.pop("inputs"), data.pop("targets")
    network = Compact().to(inputs.dtype)
    network.load_state_dict({key.removeprefix("init."): value for key, value in data.items()})
    optimizer = make_optimizer(case, network.parameters())
    schedule_free = isinstance(optimizer, schedulefree.AdamWScheduleFree)
    if schedule_free:
        optimizer.train()
    schedule = make_schedule(case, optimizer)
    averages = {name: Average(settings, network) for name, settings in case["averages"].items()}
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
        clip(case, network)
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
        losses.append(total)
        for average in averages.values():
            average.update(network, step + 1)
    out = {"losses": torch.tensor(losses, dtype=torch.float64), "rates": torch.tensor(rates, dtype=torch.float64)}
    weights = {"raw": {key: value.clone() for key, value in network.state_dict().items()}}
    weights |= {name: average.weights for name, average in averages.items()}
    if schedule_free:
        optimizer.eval()
        weights["x"] = network.state_dict()
    out |= {f"{kind}.{key}": value for kind, values in weights.items() for key, value in values.items()}
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
    with multiprocessing.Pool(2) as pool:
        pool.map(functools.partial(run, folder), request["cases"], chunksize=1)
    safetensors.torch.save_file({"scales": scaler_sequence(request["finite"])}, folder / "scaler.safetensors")


main(pathlib.Path(sys.argv[1]))
