"""The losses of loss_test.cpp, by PyTorch, torchvision, pytorch-msssim, lpips and DISTS-pytorch.

usage: loss_reference.py FOLDER
Writes FOLDER/vgg19.pth, vgg16.safetensors and alexnet.pth, networks of torchvision's with random weights.
FOLDER/cases.json lists the cases, each the keys of [loss] that it sets, and its pictures' name;
FOLDER/{pictures}.safetensors holds "prediction" and "target".
Writes FOLDER/{case}.out.safetensors: "terms", the weighted terms in the order of the keys, and "gradient", that of
their sum by the prediction.
"""
import json
import pathlib
import sys
import types

import pytorch_msssim
import safetensors.torch
import torch
import torchvision
from torch.nn import functional
from torchvision.models.vgg import cfgs, make_layers

sys.modules["lpips.trainer"] = types.ModuleType("lpips.trainer")  # would ask for scipy and more; only trains
import lpips  # noqa: E402
from DISTS_pytorch import DISTS  # noqa: E402

torch.set_num_threads(1)

window = torch.exp(-(torch.arange(11, dtype=torch.float64) - 5) ** 2 / (2 * 1.5 ** 2))
window = (window / window.sum()).reshape(1, 1, 1, 11).repeat(3, 1, 1, 1)

# ITU-R BT.709: Y' of R'G'B' and the two scaled differences from it.
ycbcr = torch.tensor([[0.2126, 0.7152, 0.0722],
                      [-0.2126 / 1.8556, -0.7152 / 1.8556, 0.9278 / 1.8556],
                      [0.7874 / 1.5748, -0.7152 / 1.5748, -0.0722 / 1.5748]], dtype=torch.float64)

kernels = {
    "sobel": [[[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]], [[-1, -2, -1], [0, 0, 0], [1, 2, 1]]],
    "laplacian": [[[0, 1, 0], [1, -4, 1], [0, 1, 0]]],
}


def edges(pictures, operator):
    weight = torch.tensor(kernels[operator], dtype=torch.float64).unsqueeze(1) / (8 if operator == "sobel" else 1)
    return functional.conv2d(pictures.reshape(-1, 1, *pictures.shape[2:]), weight)


def spectrum(pictures):
    return torch.view_as_real(torch.fft.rfft2(pictures, norm="ortho"))


def seen_by_pixel_losses(case, pictures):
    luma, chroma = case.get("luma_weight", 1), case.get("chroma_weight", 1)
    if (luma, chroma) == (1, 1):
        return pictures, torch.ones(1, dtype=torch.float64)
    if case["network_color"] == "rgb":
        pictures = torch.einsum("ij,njhw->nihw", ycbcr, pictures)
    return pictures, torch.tensor([luma, chroma, chroma], dtype=torch.float64).reshape(1, 3, 1, 1)


# --- Networks with random weights, which every one of these packages would download ---

def random_features(layers):
    torch.manual_seed(1)
    for layer in layers:
        if isinstance(layer, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            torch.nn.init.normal_(layer.bias, std=0.1)
    return layers


def classifier(layers):  # as torchvision's, without what comes after the features
    network = torch.nn.Module()
    network.features = layers
    return network


vgg19 = classifier(random_features(make_layers(cfgs["E"], False)))
vgg16 = classifier(random_features(make_layers(cfgs["D"], False)))
alexnet = classifier(random_features(torchvision.models.AlexNet().features))
torchvision.models.vgg16 = lambda pretrained: vgg16
torchvision.models.alexnet = lambda pretrained: alexnet


def write_networks(folder):
    torch.save(vgg19.state_dict(), folder / "vgg19.pth")
    safetensors.torch.save_file(vgg16.state_dict(), folder / "vgg16.safetensors")
    torch.save(alexnet.state_dict(), folder / "alexnet.pth")


def layer_numbers():
    names, block, conv = {}, 1, 1
    for number, layer in enumerate(vgg19.features):
        if isinstance(layer, torch.nn.MaxPool2d):
            names[f"pool{block}"] = number
            block, conv = block + 1, 1
        elif isinstance(layer, torch.nn.ReLU):
            names[f"relu{block}_{conv}"] = number
            conv += 1
        else:
            names[f"conv{block}_{conv}"] = number
    return names


def perceptual(settings, prediction, target):
    wanted = {layer_numbers()[name]: weight for name, weight in settings["layers"].items()}
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    x, y = ((p - mean.view(1, 3, 1, 1)) / std.view(1, 3, 1, 1) for p in (prediction, target))
    total = 0
    for number, layer in enumerate(vgg19.double().features[:max(wanted) + 1]):
        x, y = (torch.relu(p) if isinstance(layer, torch.nn.ReLU) else layer(p) for p in (x, y))
        if number in wanted:
            total = total + wanted[number] * compare_features(settings["criterion"], x, y)
    return total


def gram(x):
    rows = x.flatten(2)
    return rows @ rows.mT / rows[0].numel()


def compare_features(criterion, x, y):
    if criterion == "gram":
        return functional.l1_loss(gram(x), gram(y))
    return (functional.mse_loss if criterion == "mse" else functional.l1_loss)(x, y)


def learned_distance(settings, prediction, target):
    return lpips.LPIPS(net=settings["net"], verbose=False).double()(prediction, target, normalize=True).mean()


def structure_and_texture(prediction, target):
    return DISTS().double()(prediction, target, require_grad=True, batch_average=True)


# --- Small ones, from their papers ---

def focal_frequency(alpha, prediction, target):
    distance = torch.fft.fft2(prediction - target, norm="ortho").abs()
    weight = distance.detach() ** alpha
    weight = weight / weight.amax((-2, -1), keepdim=True)
    return (weight * distance ** 2).mean()


def locally_discriminative(prediction, target):
    residual = (target - prediction).abs().sum(1, keepdim=True)
    windows = functional.pad(residual, [3] * 4, mode="reflect").unfold(2, 7, 1).unfold(3, 7, 1)
    weight = residual.var((1, 2, 3), keepdim=True) ** (1 / 5) * windows.var((-1, -2))
    return functional.l1_loss(weight * prediction, weight * target)


def wavelet(settings, prediction, target):
    low = torch.tensor(settings["low"], dtype=torch.float64) / 2 ** 0.5
    high = low.flip(0) * torch.tensor([-1, 1]).repeat(len(low) // 2)
    picture = (prediction - target).flatten(0, 1).unsqueeze(1)
    total = 0
    for level in range(settings["levels"]):
        bands = torch.stack([torch.outer(y, x) for y in (low, high) for x in (low, high)]).unsqueeze(1)
        picture, lh, hl, hh = functional.conv2d(picture, bands, dilation=2 ** level).split(1, dim=1)
        total = total + sum(settings[name] * band.abs().mean() for name, band in (("lh", lh), ("hl", hl), ("hh", hh)))
    return total + settings["ll"] * picture.abs().mean()


def colour(block, prediction, target):
    chroma = [torch.einsum("ij,njhw->nihw", ycbcr, x)[:, 1:] for x in (prediction, target)]
    return functional.l1_loss(*(functional.avg_pool2d(x, block) for x in chroma))


def terms_of(case, prediction, target):
    temporal = case.get("temporal", 0)
    if temporal:
        changes = functional.l1_loss(prediction.diff(dim=1), target.diff(dim=1))
        prediction, target = prediction.flatten(0, 1), target.flatten(0, 1)
    p, weights = seen_by_pixel_losses(case, prediction)
    t, _ = seen_by_pixel_losses(case, target)
    eps = case.get("charbonnier_eps", 1e-6)
    values = {
        "l1": lambda: (weights * functional.l1_loss(p, t, reduction="none")).mean(),
        "mse": lambda: (weights * functional.mse_loss(p, t, reduction="none")).mean(),
        "charbonnier": lambda: (weights * torch.sqrt((p - t) ** 2 + eps ** 2)).mean(),
        "huber": lambda: (weights * functional.huber_loss(p, t, "none", case.get("huber_delta", 1))).mean(),
        "ssim": lambda: 1 - pytorch_msssim.ssim(prediction, target, data_range=1, win=window),
        "ms_ssim": lambda: 1 - pytorch_msssim.ms_ssim(prediction, target, data_range=1, win=window),
        "fft": lambda: functional.l1_loss(spectrum(prediction), spectrum(target)),
        "edge": lambda: functional.l1_loss(*(edges(x, case["edge_operator"]) for x in (prediction, target))),
        "temporal": lambda: changes,
        "ldl": lambda: locally_discriminative(prediction, target),
        "perceptual": lambda: perceptual(case["perceptual_settings"], prediction, target),
        "lpips": lambda: learned_distance(case["lpips_settings"], prediction, target),
        "dists": lambda: structure_and_texture(prediction, target),
        "focal_frequency": lambda: focal_frequency(case["focal_alpha"], prediction, target),
        "wavelet": lambda: wavelet(case["wavelet_settings"], prediction, target),
        "color": lambda: colour(case["color_block"], prediction, target),
    }
    return [case[name] * value() for name, value in values.items() if case.get(name, 0)]


def main(folder):
    write_networks(folder)
    for case in json.loads((folder / "cases.json").read_text()):
        pictures = safetensors.torch.load_file(folder / f"{case['pictures']}.safetensors")
        prediction = pictures["prediction"].requires_grad_()
        terms = terms_of(case, prediction, pictures["target"])
        sum(terms).backward()
        out = {"terms": torch.stack(terms).detach(), "gradient": prediction.grad}
        safetensors.torch.save_file(out, folder / f"{case['name']}.out.safetensors")


main(pathlib.Path(sys.argv[1]))
