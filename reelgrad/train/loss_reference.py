"""The losses of loss_test.cpp, by PyTorch and pytorch-msssim.

usage: loss_reference.py FOLDER
FOLDER/cases.json lists the cases, each the keys of [loss] that it sets, and its pictures' name;
FOLDER/{pictures}.safetensors holds "prediction" and "target".
Writes FOLDER/{case}.out.safetensors: "terms", the weighted terms in the order of the keys, and "gradient", that of
their sum by the prediction.
"""
import json
import pathlib
import sys

import pytorch_msssim
import safetensors.torch
import torch
from torch.nn import functional

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
    if case["color"] == "rgb":
        pictures = torch.einsum("ij,njhw->nihw", ycbcr, pictures)
    return pictures, torch.tensor([luma, chroma, chroma], dtype=torch.float64).reshape(1, 3, 1, 1)


def terms_of(case, prediction, target):
    temporal = case.get("temporal", 0)
    if temporal:
        changes = functional.l1_loss(prediction[:, 1] - prediction[:, 0], target[:, 1] - target[:, 0])
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
    }
    return [case[name] * value() for name, value in values.items() if case.get(name, 0)]


def main(folder):
    for case in json.loads((folder / "cases.json").read_text()):
        pictures = safetensors.torch.load_file(folder / f"{case['pictures']}.safetensors")
        prediction = pictures["prediction"].requires_grad_()
        terms = terms_of(case, prediction, pictures["target"])
        sum(terms).backward()
        out = {"terms": torch.stack(terms).detach(), "gradient": prediction.grad}
        safetensors.torch.save_file(out, folder / f"{case['name']}.out.safetensors")


main(pathlib.Path(sys.argv[1]))
