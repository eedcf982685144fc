"""Reference for spandrel_testing.cpp: what spandrel makes of a network that we wrote.

usage: spandrel_reference.py FOLDER --strict|--renames
Reads FOLDER/model.safetensors and FOLDER/input.safetensors ("input", "weights"); writes FOLDER/facts.json,
FOLDER/output.safetensors ("output" in evaluation; in training and float64 "gradient.KEY" of the sum of output times
weights; "output_of_theirs") and FOLDER/theirs.safetensors, spandrel's network with random weights of its own.
--renames: spandrel's keys are not the file's.
"""
import json
import pathlib
import sys

import safetensors.torch
import torch
from spandrel import ModelLoader
from torch.utils.flop_counter import FlopCounterMode


def output_of(network, image):
    with torch.no_grad():
        return network.eval()(image)


def main(folder, strict):
    torch.manual_seed(11)
    inputs = safetensors.torch.load_file(folder / "input.safetensors")
    descriptor = ModelLoader(device="cpu").load_from_file(folder / "model.safetensors")
    network = descriptor.model
    # spandrel loads strictly; this is about what it fills in by itself.
    if strict:
        network.load_state_dict(safetensors.torch.load_file(folder / "model.safetensors"), strict=True)
    state = network.state_dict()
    side = 64
    with FlopCounterMode(display=False) as counter:
        output_of(network, inputs["input"].new_zeros(1, inputs["input"].shape[1], side, side))
    facts = {
        "id": descriptor.architecture.id,
        "scale": descriptor.scale,
        "flops_per_input_pixel": counter.get_total_flops() / side**2,
        "values": sum(tensor.numel() for tensor in state.values()),
    }
    (folder / "facts.json").write_text(json.dumps(facts))

    results = {"output": output_of(network, inputs["input"]).clone()}

    for parameter in network.parameters():
        parameter.requires_grad_(True)
    network.double().train()
    (network(inputs["input"].double()) * inputs["weights"].double()).sum().backward()
    for key, parameter in network.named_parameters():
        if parameter.grad is not None:
            results["gradient." + key] = parameter.grad.contiguous()
    network.float()

    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.03)
    results["output_of_theirs"] = output_of(network, inputs["input"]).clone()
    theirs = {key: value.clone().contiguous() for key, value in network.state_dict().items()}
    safetensors.torch.save_file(theirs, folder / "theirs.safetensors")
    safetensors.torch.save_file(results, folder / "output.safetensors")


main(pathlib.Path(sys.argv[1]), sys.argv[2] == "--strict")
