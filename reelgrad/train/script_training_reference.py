"""PyTorch as the reference of script_training_test.cpp: the usual loop over a network that is then given as TorchScript.

usage: script_training_reference.py FOLDER
Writes FOLDER/net.pt (untrained), and FOLDER/{float32,float64}.safetensors: "inputs" and "targets", 10 samples of which
each step takes two, the "losses" of 20 steps of AdamW, and the weights after them as "raw.…".
"""
import pathlib
import sys

import safetensors.torch
import torch
from torch import nn

torch.set_num_threads(1)
STEPS, BATCH = 20, 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Conv2d(3, 8, 3, padding=1)
        self.body = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.LeakyReLU(0.1, inplace=True),
                                  nn.Conv2d(8, 8, 3, padding=1), nn.PReLU(8))
        self.gain = nn.Parameter(torch.ones(1))
        self.tail = nn.Conv2d(8, 12, 3, padding=1)

    def forward(self, x):
        features = self.head(x)
        features = features + self.gain * self.body(features)
        enlarged = nn.functional.interpolate(x, scale_factor=2.0, mode="nearest")
        return nn.functional.pixel_shuffle(self.tail(features), 2) + enlarged


def train(network, inputs, targets):
    optimizer = torch.optim.AdamW(network.parameters(), 1e-3, (0.9, 0.99), 1e-8, 0.01)
    losses = []
    for step in range(STEPS):
        index = [(step * BATCH + i) % len(inputs) for i in range(BATCH)]
        loss = torch.sqrt((network(inputs[index]) - targets[index]) ** 2 + 1e-6 ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64)


def main(folder):
    torch.manual_seed(11)
    torch.jit.script(Net()).save(folder / "net.pt")
    inputs, targets = torch.rand(10, 3, 8, 8), torch.rand(10, 3, 16, 16)
    for name, dtype in (("float32", torch.float32), ("float64", torch.float64)):
        network = Net()
        network.load_state_dict(torch.jit.load(folder / "net.pt").state_dict())
        network.to(dtype)
        x, y = inputs.to(dtype), targets.to(dtype)
        losses = train(network, x, y)
        tensors = {"inputs": x, "targets": y, "losses": losses}
        tensors |= {f"raw.{key}": value for key, value in network.state_dict().items()}
        safetensors.torch.save_file(tensors, folder / f"{name}.safetensors")


main(pathlib.Path(sys.argv[1]))
