"""The discriminators and losses of gan_loss_test.cpp, by PyTorch in a usual loop.

usage: gan_reference.py FOLDER
FOLDER/cases.json lists the cases; FOLDER/{case}.state.safetensors holds a discriminator, {case}.pictures.safetensors
"real" and "fake", in float64.
Writes FOLDER/{case}.start.safetensors, a new discriminator in float32 after torch.manual_seed(7), and
FOLDER/{case}.out.safetensors: of each step "generator.N", "discriminator.N" and "gradient.N", that of the generator's
loss by the fake picture, and the discriminator in the end.
"""
import json
import pathlib
import sys

import safetensors.torch
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import spectral_norm

from reference_networks import UNetSN

torch.set_num_threads(1)


class UNet(UNetSN):
    def __init__(self, case):
        super().__init__(case["channels"], case["features"], case["skips"])

    def forward(self, x):
        return [super().forward(x)]


class PatchVgg(nn.Module):
    def __init__(self, case):
        super().__init__()
        f, inputs = case["features"], case["channels"]
        self.levels = 6 if case["size"] >= 256 else 5
        for level in range(self.levels):
            outputs = f * min(2 ** level, 8)
            for part, conv in enumerate((nn.Conv2d(inputs, outputs, 3, 1, 1, bias=level == 0),
                                         nn.Conv2d(outputs, outputs, 4, 2, 1, bias=False))):
                setattr(self, f"conv{level}_{part}", conv)
                if level + part:
                    setattr(self, f"bn{level}_{part}", nn.BatchNorm2d(outputs))
            inputs = outputs
        self.linear1 = nn.Linear(inputs * (case["size"] // 2 ** self.levels) ** 2, 100)
        self.linear2 = nn.Linear(100, 1)

    def forward(self, x):
        for level in range(self.levels):
            for part in range(2):
                x = getattr(self, f"conv{level}_{part}")(x)
                x = getattr(self, f"bn{level}_{part}")(x) if level + part else x
                x = functional.leaky_relu(x, 0.2)
        return [self.linear2(functional.leaky_relu(self.linear1(x.flatten(1)), 0.2))]


class PatchGan(nn.Module):
    def __init__(self, case):
        super().__init__()
        norm = spectral_norm if case["norm"] == "spectral" else lambda conv: conv
        layers, inputs, count = [], case["channels"], case["layers"]
        for i in range(count + 1):
            outputs, normed = case["features"] * min(2 ** i, 8), i > 0 and case["norm"] == "batch"
            stride, bias = (2 if i < count else 1), i == 0 or case["norm"] != "batch"
            layers.append(norm(nn.Conv2d(inputs, outputs, 4, stride, 1, bias=bias)))
            layers += [nn.BatchNorm2d(outputs)] if normed else []
            layers.append(nn.LeakyReLU(0.2))
            inputs = outputs
        self.model = nn.Sequential(*layers, norm(nn.Conv2d(inputs, 1, 4, 1, 1)))

    def forward(self, x):
        return [self.model(x)]


class MultiScale(nn.Module):
    def __init__(self, case, kind):
        super().__init__()
        for i in range(case["scales"]):
            self.add_module(f"discriminator_{i}", kind({**case, "size": case["size"] // 2 ** i}))

    def forward(self, x):
        logits = []
        for discriminator in self.children():
            logits += discriminator(x)
            x = functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False)
        return logits


def make(case):
    torch.manual_seed(7)
    kind = {"unet_sn": UNet, "patch_vgg": PatchVgg, "patchgan": PatchGan}[case["net"]]
    return kind(case) if case["scales"] == 1 else MultiScale(case, kind)


def distance(kind, logits, label):
    target = torch.full_like(logits, label)
    squared = kind in ("lsgan", "ralsgan")
    return functional.mse_loss(logits, target) if squared else nn.BCEWithLogitsLoss()(logits, target)


def generator_loss(kind, real, fake):
    if kind == "hinge":
        return -fake.mean()
    if kind in ("ragan", "ralsgan"):
        real = real.detach()
        return (distance(kind, real - fake.mean(), 0) + distance(kind, fake - real.mean(), 1)) / 2
    return distance(kind, fake, 1)


def discriminator_loss(kind, real, fake, label):
    if kind == "hinge":
        return functional.relu(1 - real).mean() + functional.relu(1 + fake).mean()
    if kind in ("ragan", "ralsgan"):
        return (distance(kind, real - fake.mean(), label) + distance(kind, fake - real.mean(), 0)) / 2
    return distance(kind, real, label) + distance(kind, fake, 0)


def over_scales(loss, *logits):
    parts = [loss(*one) for one in zip(*logits)]
    return sum(parts) / len(parts)


def r1_penalty(logits, picture):
    gradient, = torch.autograd.grad(sum(one.sum() for one in logits), picture, create_graph=True)
    return gradient.square().sum((1, 2, 3)).mean()


def train(case, network, pictures):
    kind, label, out = case["kind"], 1 - case["label_smoothing"], {}
    parameters = list(network.parameters())
    for step in range(case["steps"]):
        fake = pictures["fake"].clone().requires_grad_()
        real = pictures["real"].clone().requires_grad_(case["r1"] > 0)
        with torch.no_grad():
            real_logits = network(real)
        loss = over_scales(lambda r, f: generator_loss(kind, r, f), real_logits, network(fake))
        out[f"gradient.{step}"], = torch.autograd.grad(loss, fake)
        out[f"generator.{step}"] = loss.detach()

        real_logits, fake_logits = network(real), network(fake.detach())
        loss = over_scales(lambda r, f: discriminator_loss(kind, r, f, label), real_logits, fake_logits)
        if case["r1"] > 0:
            loss = loss + case["r1"] * r1_penalty(real_logits, real)
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        out[f"discriminator.{step}"] = loss.detach()
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients):
                if gradient is not None:
                    parameter -= case["lr"] * gradient
    return {**out, **network.state_dict()}


def main(folder):
    for case in json.loads((folder / "cases.json").read_text()):
        name = case["name"]
        network = make(case)
        safetensors.torch.save_file(network.state_dict(), folder / f"{name}.start.safetensors")
        network.double().load_state_dict(safetensors.torch.load_file(folder / f"{name}.state.safetensors"))
        out = train(case, network, safetensors.torch.load_file(folder / f"{name}.pictures.safetensors"))
        safetensors.torch.save_file(out, folder / f"{name}.out.safetensors")


main(pathlib.Path(sys.argv[1]))
