"""How VapourSynth frames usually become CUDA tensors in Python: np.asarray of each plane, stack, to the card, float, / 255.
RGB24 frames of 1920x1080 that lie in memory; frames a second.

    python bench/peers/frames_recipe.py [--frames N] [--json]
"""
import argparse
import json
import time

import numpy as np
import torch
import vapoursynth as vs


def resident_frames(count, width, height):
    core = vs.core
    random = np.random.default_rng(1)
    noise = random.integers(0, 256, (height + count, width), dtype=np.uint8)

    def fill(n, f):
        f = f.copy()
        for plane in range(3):
            np.asarray(f[plane])[:] = noise[n:n + height]
        return f

    blank = core.std.BlankClip(width=width, height=height, format=vs.RGB24, length=count)
    clip = core.std.ModifyFrame(blank, blank, fill)
    return [clip.get_frame(n) for n in range(count)]


def to_tensor(frame):
    planes = np.stack([np.asarray(frame[plane]) for plane in range(3)], axis=2)  # H, W, C as image libraries have it
    return torch.from_numpy(planes).permute(2, 0, 1).to("cuda").float() / 255


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=400)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    frames = resident_frames(32, 1920, 1080)
    for frame in frames:
        to_tensor(frame)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for n in range(args.frames):
        to_tensor(frames[n % len(frames)])
    torch.cuda.synchronize()
    rate = args.frames / (time.perf_counter() - begin)
    print(json.dumps({"name": "recipe rgb24 1080p", "fps": rate}) if args.json else f"{rate:.0f} frames a second")


if __name__ == "__main__":
    main()
