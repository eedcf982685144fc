"""Does training from the frame pool cost quality against fully shuffled sampling? The same run with the default pool and with
one that holds every frame from the first step; best validation PSNR of each, over several seeds.

    python bench/pool_vs_shuffle.py --built build/release [--steps N] [--seeds 1 2 3]
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def final_psnr(args, seed, pool):
    with tempfile.TemporaryDirectory() as folder:
        settings = {"run.dir": f"{folder}/run", "run.steps": args.steps, "run.seed": seed, "model.features": args.features,
                    "model.convs": args.convs, "data.batch": 8, "data.crop_px": 48, "optimizer.lr": 1e-3, "ema.decay": 0.99,
                    "validation.every": args.steps, **pool}
        options = [word for key, value in settings.items() for word in ("--set", f"{key}={json.dumps(value)}")]
        subprocess.run([f"{args.built}/bin/reelgrad", "train", f"{ROOT}/examples/sr2x.toml", *options], check=True,
                       stderr=subprocess.DEVNULL)
        lines = map(json.loads, pathlib.Path(folder, "run", "metrics.jsonl").read_text().splitlines())
        return [line["validation"]["ours"]["psnr_rgb"] for line in lines if "validation" in line][-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--built", default=f"{ROOT}/build/release")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--features", type=int, default=24)
    parser.add_argument("--convs", type=int, default=6)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--pool-frames", type=int, default=32)
    args = parser.parse_args()
    # Segments of one frame, all resident from the first step on: every sample is drawn from the whole clip.
    shuffled = {"data.pool_frames": 4096, "data.segment_frames": 1}
    pooled = {"data.pool_frames": args.pool_frames}
    print(f"{'seed':>4} {'pool of ' + str(args.pool_frames):>14} {'fully shuffled':>14} {'difference':>11}")
    rows = []
    for seed in args.seeds:
        a, b = final_psnr(args, seed, pooled), final_psnr(args, seed, shuffled)
        rows.append((a, b))
        print(f"{seed:>4} {a:>11.3f} dB {b:>11.3f} dB {a - b:>+8.3f} dB", flush=True)
    print(f"mean {statistics.mean(a - b for a, b in rows):+.3f} dB")


if __name__ == "__main__":
    main()
