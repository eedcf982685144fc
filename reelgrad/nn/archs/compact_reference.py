"""Reference for compact_test.cpp: PyTorch, safetensors' own reader and spandrel on the files that the test wrote.

usage: compact_reference.py FOLDER
Reads FOLDER/*.model.safetensors and FOLDER/input.safetensors; writes FOLDER/*.output.safetensors with "pytorch" and,
where spandrel knows the network, "spandrel"; and FOLDER/init.safetensors, a network initialised from seed 7.
"""
import json
import pathlib
import sys

import safetensors
import safetensors.torch
import torch
from spandrel import ModelLoader
from torch import nn

ACTIVATIONS = {
    "prelu": lambda features: nn.PReLU(features),
    "relu": lambda features: nn.ReLU(),
    "leakyrelu": lambda features: nn.LeakyReLU(0.1),
}


class Compact(nn.Module):
    def __init__(self, channels, features, convs, scale, activation):
        super().__init__()
        layers = [nn.Conv2d(channels, features, 3, padding=1), ACTIVATIONS[activation](features)]
        for _ in range(convs):
            layers += [nn.Conv2d(features, features, 3, padding=1), ACTIVATIONS[activation](features)]
        layers.append(nn.Conv2d(features, channels * scale * scale, 3, padding=1))
        self.body = nn.Sequential(*layers)
        self.scale = scale

    def forward(self, x):
        enlarged = nn.functional.interpolate(x, scale_factor=self.scale, mode="nearest")
        return nn.functional.pixel_shuffle(self.body(x), self.scale) + enlarged


def main(folder):
    torch.manual_seed(7)
    safetensors.torch.save_file(Compact(3, 8, 2, 2, "prelu").state_dict(), folder / "init.safetensors")

    inputs = safetensors.torch.load_file(folder / "input.safetensors")
    for path in sorted(folder.glob("*.model.safetensors")):
        with safetensors.safe_open(path, "pt") as file:
            spec = json.loads(file.metadata()["reelgrad"])
            state = {key: file.get_tensor(key) for key in file.keys()}
        options = spec["options"]
        channels = 1 if spec["color"] == "gray" else 3
        network = Compact(channels, int(options["features"]), int(options["convs"]), spec["scale"], options["activation"])
        network.load_state_dict(state, strict=True)
        image = inputs[f"channels{channels}"]
        with torch.no_grad():
            outputs = {"pytorch": network(image)}
            if options["activation"] == "prelu":
                outputs["spandrel"] = ModelLoader().load_from_file(path).model(image)
        safetensors.torch.save_file(outputs, str(path).replace(".model.", ".output."))


main(pathlib.Path(sys.argv[1]))
