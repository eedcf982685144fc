"""Reference for spandrel_testing.cpp: what spandrel makes of a network that we wrote.

usage: spandrel_reference.py FOLDER --strict|--renames|SCRIPT.py [--large]
Reads FOLDER/model.safetensors and FOLDER/input.safetensors ("input", "weights"); writes FOLDER/facts.json (what spandrel
takes it for, and its operations on "input"),
FOLDER/output.safetensors ("output" in evaluation; in training and float64 "gradient.KEY" of the sum of output times
weights; "output_of_theirs") and FOLDER/theirs.safetensors, spandrel's network with random weights of its own.
--renames: spandrel's keys are not the file's.
SCRIPT.py: its network(state) makes the module, and says its scale, in the place of spandrel.
--large: without the random weights of its own.
"""
import json
import pathlib
import runpy
import sys

import safetensors.torch
import torch
from torch.utils.flop_counter import FlopCounterMode


def output_of(network, image):
    with torch.no_grad():
        return network(image).contiguous()


def counted_output(network, image):
    """And its operations. spandrel's SPAN merges its kernels in every forward: no work of the network's."""
    network.eval()  # some merge their kernels now
    mergers = [module for module in network.modules() if hasattr(module, "update_params")]
    with FlopCounterMode(display=False) as counter:
        output = output_of(network, image)
    if not mergers:
        return output, counter.get_total_flops()
    for module in mergers:
        module.update_params = lambda: None
    with FlopCounterMode(display=False) as counter:
        output_of(network, image)
    for module in mergers:
        del module.update_params
    return output, counter.get_total_flops()


def file_key(key, given):
    """spandrel takes the fold out of "conv_first.1.weight", and cannot read what it then has."""
    folded = key.replace(".", ".1.", 1)
    return folded if key not in given and folded in given else key


def load(file, how, given):
    """The network, its architecture's name and its scale."""
    if how.endswith(".py"):
        network, scale = runpy.run_path(how)["network"](given)
        network.load_state_dict(given, strict=True)
        return network, pathlib.Path(how).stem.removesuffix("_reference"), scale
    from spandrel import ModelLoader  # it takes seconds

    descriptor = ModelLoader(device="cpu").load_from_file(file)
    # spandrel loads strictly; this is about what it fills in by itself.
    if how == "--strict":
        descriptor.model.load_state_dict(given, strict=True)
    return descriptor.model, descriptor.architecture.id, descriptor.scale


def main(folder, how, large):
    torch.manual_seed(11)
    inputs = safetensors.torch.load_file(folder / "input.safetensors")
    given = safetensors.torch.load_file(folder / "model.safetensors")
    network, name, scale = load(folder / "model.safetensors", how, given)
    output, flops = counted_output(network, inputs["input"])
    values = sum(tensor.numel() for tensor in network.state_dict().values())
    (folder / "facts.json").write_text(json.dumps({"id": name, "scale": scale, "flops": flops, "values": values}))

    results = {"output": output}

    for parameter in network.parameters():
        parameter.requires_grad_(True)
    network.double().train()
    for module in network.modules():
        if type(module).__name__ == "DropPath":
            module.eval()
    (network(inputs["input"].double()) * inputs["weights"].double()).sum().backward()
    for key, parameter in network.named_parameters():
        if parameter.grad is not None:
            results["gradient." + key] = parameter.grad.contiguous()
    if not large:
        network.float()
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.03)
        results["output_of_theirs"] = output_of(network.eval(), inputs["input"])
        theirs = {file_key(key, given): value.clone().contiguous() for key, value in network.state_dict().items()}
        safetensors.torch.save_file(theirs, folder / "theirs.safetensors")
    safetensors.torch.save_file(results, folder / "output.safetensors")


main(pathlib.Path(sys.argv[1]), sys.argv[2], "--large" in sys.argv)
