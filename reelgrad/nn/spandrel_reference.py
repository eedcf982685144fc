"""Reference for spandrel_testing.cpp: what spandrel makes of a network that we wrote.

usage: spandrel_reference.py FOLDER --strict|--renames|SCRIPT.py
Reads FOLDER/model.safetensors and FOLDER/input.safetensors ("input", "weights"); writes FOLDER/facts.json,
FOLDER/output.safetensors ("output" in evaluation; in training and float64 "gradient.KEY" of the sum of output times
weights; "output_of_theirs") and FOLDER/theirs.safetensors, spandrel's network with random weights of its own.
--renames: spandrel's keys are not the file's.
SCRIPT.py: its network(state) makes the module, and says its scale, in the place of spandrel.
"""
import json
import pathlib
import runpy
import sys

import safetensors.torch
import torch
from spandrel import ModelLoader
from torch.utils.flop_counter import FlopCounterMode


def output_of(network, image):
    with torch.no_grad():
        return network.eval()(image)


def load(file, how):
    """The network, its architecture's name and its scale."""
    state = safetensors.torch.load_file(file)
    if how.endswith(".py"):
        network, scale = runpy.run_path(how)["network"](state)
        network.load_state_dict(state, strict=True)
        return network, pathlib.Path(how).stem.removesuffix("_reference"), scale
    descriptor = ModelLoader(device="cpu").load_from_file(file)
    # spandrel loads strictly; this is about what it fills in by itself.
    if how == "--strict":
        descriptor.model.load_state_dict(state, strict=True)
    return descriptor.model, descriptor.architecture.id, descriptor.scale


def main(folder, how):
    torch.manual_seed(11)
    inputs = safetensors.torch.load_file(folder / "input.safetensors")
    network, name, scale = load(folder / "model.safetensors", how)
    state = network.state_dict()
    side = 64
    network.eval()
    mergers = [module for module in network.modules() if hasattr(module, "update_params")]
    for module in mergers:
        module.update_params = lambda: None  # spandrel's SPAN merges in every forward: no work of the network's
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(inputs["input"].new_zeros(1, *inputs["input"].shape[1:-2], side, side))
    for module in mergers:
        del module.update_params
    facts = {
        "id": name,
        "scale": scale,
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


main(pathlib.Path(sys.argv[1]), sys.argv[2])
