"""PyTorch as the reference of adversarial_test.cpp: the usual loop of two networks, as BasicSR has it.

usage: adversarial_reference.py FOLDER
FOLDER/cases.json lists the cases (with a "scaler" also the steps whose inputs or targets are not finite); FOLDER/start.safetensors holds the initial weights ("generator.…", "discriminator.…"
with spectral norm's vectors) and the samples. Writes FOLDER/{case}.out.safetensors: what was measured a step and the
final state.
"""
import functools
import json
import multiprocessing
import pathlib
import sys

import safetensors.torch
import torch
from torch.func import functional_call
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_

from reference_networks import Compact, UNetSN

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)


def bce(logits, label):
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, label))


def generator_loss(kind, discriminator, fake, real):
    if kind == "ragan":
        with torch.no_grad():
            real_logits = discriminator(real)
        logits = discriminator(fake)
        return (bce(real_logits - logits.mean(), 0.0) + bce(logits - real_logits.mean(), 1.0)) / 2
    logits = discriminator(fake)
    return -logits.mean() if kind == "hinge" else bce(logits, 1.0)


def discriminator_loss(case, discriminator, fake, real):
    real = real.clone().requires_grad_(case["r1"] > 0)
    real_logits, fake_logits = discriminator(real), discriminator(fake)
    label = 1 - case["label_smoothing"]
    match case["kind"]:
        case "ragan":
            loss = (bce(real_logits - fake_logits.mean(), label) + bce(fake_logits - real_logits.mean(), 0.0)) / 2
        case "hinge":
            loss = F.relu(1 - real_logits).mean() + F.relu(1 + fake_logits).mean()
        case _:
            loss = bce(real_logits, label) + bce(fake_logits, 0.0)
    if case["r1"] > 0:
        gradient, = torch.autograd.grad(real_logits.sum(), real, create_graph=True)
        loss = loss + case["r1"] / 2 * gradient.square().flatten(1).sum(1).mean()
    return loss, real_logits.mean().item(), fake_logits.mean().item()


def locally_discriminative(output, target, averaged):
    """LDL (Liang et al., 2022), the map refined by what the averaged network gives."""
    r, r_averaged = ((target - x).abs().sum(1, keepdim=True) for x in (output, averaged))
    windows = F.pad(r, [3] * 4, mode="reflect").unfold(2, 7, 1).unfold(3, 7, 1)
    weight = torch.where(r < r_averaged, 0, r.var((1, 2, 3), keepdim=True) ** (1 / 5) * windows.var((-1, -2)))
    return F.l1_loss(weight * output, weight * target)


def norm_of(network):
    return torch.stack([p.grad.square().sum() for p in network.parameters()]).sum().sqrt().item()


def rate(case, step, lr):
    """Cosine to 0, by the steps of the run."""
    if case["schedule"] == "constant":
        return lr
    return lr * (1 + torch.cos(torch.tensor(torch.pi * step / case["steps"])).item()) / 2


def make_scalers(case):
    """Of the generator and the discriminator."""
    if "scaler" not in case:
        return None, None
    made = [torch.amp.GradScaler("cpu", 1024.0, growth_interval=3) for _ in range(2)]
    return made[:1] * 2 if case["scaler"] == "shared" else made


def scaled(scaler, loss):
    return scaler.scale(loss) if scaler else loss


def update(scaler, optimizer):
    if scaler:
        scaler.step(optimizer)
    else:
        optimizer.step()


def updates_of(optimizer):
    return max((int(state["step"]) for state in optimizer.state.values()), default=0)


def spoil(case, step, what, pictures):
    return torch.full_like(pictures, torch.inf) if step in case.get(f"bad_{what}", ()) else pictures


def run(folder, case):
    start = safetensors.torch.load_file(folder / "start.safetensors")
    frames = case["frames"]
    inputs, targets = start.pop("inputs"), start.pop("targets")
    generator, discriminator = Compact(), UNetSN(3 * frames, 4)
    for name, network in ("generator", generator), (f"discriminator{frames}", discriminator):
        network.load_state_dict({k.removeprefix(name + "."): v for k, v in start.items() if k.startswith(name + ".")})
    g_optimizer = torch.optim.Adam(generator.parameters(), case["lr"], (0.9, 0.99))
    d_optimizer = torch.optim.Adam(discriminator.parameters(), case["lr_d"], (0.9, 0.99))
    g_scaler, d_scaler = make_scalers(case)
    average = {k: v.clone() for k, v in generator.state_dict().items()}
    samples = case["batch"] * case["accumulate"]
    series = {name: [] for name in ("loss", "loss_d", "real", "fake", "norm", "norm_d")}
    scales = []
    for step in range(case["steps"]):
        trains_generator = (step + 1) % case["iters"] == 0 and step + 1 > case["init_iters"]
        for optimizer, lr in (g_optimizer, case["lr"]), (d_optimizer, case["lr_d"]):
            optimizer.param_groups[0]["lr"] = rate(case, step, lr)
        g_optimizer.zero_grad()
        d_optimizer.zero_grad()
        sums = dict.fromkeys(series, 0.0)
        for part in range(case["accumulate"]):
            first = step * samples + part * case["batch"]
            index = [(first + i) % (len(inputs) // frames) for i in range(case["batch"])]
            index = [i * frames + f for i in index for f in range(frames)]
            real = spoil(case, step, "targets", targets[index])
            for parameter in discriminator.parameters():
                parameter.requires_grad_(False)
            if case["ldl"]:
                with torch.no_grad():
                    averaged_output = functional_call(generator, average, inputs[index])
            fake = generator(spoil(case, step, "inputs", inputs[index]))
            judged = lambda t: t.unflatten(0, (-1, frames)).flatten(1, 2)
            if trains_generator:
                loss = (fake - real).abs().mean()
                if case["temporal"]:
                    changes = (fake - real).unflatten(0, (-1, frames)).diff(dim=1)
                    loss = loss + case["temporal"] * changes.abs().mean()
                if case["ldl"]:
                    loss = loss + case["ldl"] * locally_discriminative(fake, real, averaged_output)
                loss = loss + case["gan"] * generator_loss(case["kind"], discriminator, judged(fake), judged(real))
                scaled(g_scaler, loss / case["accumulate"]).backward()
                sums["loss"] += loss.item() / case["accumulate"]
            for parameter in discriminator.parameters():
                parameter.requires_grad_(True)
            loss, *logits = discriminator_loss(case, discriminator, judged(fake.detach()), judged(real))
            scaled(d_scaler, loss / case["accumulate"]).backward()
            for name, value in zip(("loss_d", "real", "fake"), (loss.item(), *logits)):
                sums[name] += value / case["accumulate"]
        sums["norm_d"] = norm_of(discriminator)
        if case["clip_d"]:
            clip_grad_norm_(discriminator.parameters(), case["clip_d"])
        if trains_generator:
            sums["norm"] = norm_of(generator)
            if case["clip"]:
                clip_grad_norm_(generator.parameters(), case["clip"])
            before = updates_of(g_optimizer)
            update(g_scaler, g_optimizer)
            if updates_of(g_optimizer) > before:
                for key, value in generator.state_dict().items():
                    average[key].lerp_(value, 0.1)
        else:
            sums["loss"] = sums["norm"] = float("nan")
        update(d_scaler, d_optimizer)
        for scaler, steps in (g_scaler, trains_generator and g_scaler is not d_scaler), (d_scaler, True):
            if scaler and steps:
                scaler.update()
        if d_scaler:
            scales.append((g_scaler.get_scale(), d_scaler.get_scale()))
        for name, value in sums.items():
            series[name].append(value)
    out = {name: torch.tensor(values) for name, values in series.items()} | {"scales": torch.tensor(scales)}
    for prefix, state in ("generator", generator.state_dict()), ("discriminator", discriminator.state_dict()), ("ema", average):
        out |= {f"{prefix}.{key}": value.contiguous() for key, value in state.items()}
    safetensors.torch.save_file(out, folder / f"{case['name']}.out.safetensors")


def main(folder):
    with multiprocessing.Pool(2) as pool:
        pool.map(functools.partial(run, folder), json.loads((folder / "cases.json").read_text()), chunksize=1)


main(pathlib.Path(sys.argv[1]))
