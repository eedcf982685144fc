"""`reelgrad train` on the demo clip beside the usual PyTorch loop, in turns, in one run: steps per second and their ratio.

    python bench/train.py --built build/release [--steps N] [--features F --convs C --batch B --crop P]
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def ours(args):
    with tempfile.TemporaryDirectory() as folder:
        log_every = max(1, args.steps // 4)
        settings = {"run.dir": f"{folder}/run", "run.steps": args.steps, "run.log_every": log_every,
                    "model.features": args.features, "model.convs": args.convs, "data.batch": args.batch,
                    "data.crop_px": args.crop, "validation.every": 10**9, "validation.frames": "131:",
                    "checkpoint.every": 10**9}
        options = [word for key, value in settings.items() for word in ("--set", f'{key}={json.dumps(value)}')]
        subprocess.run([f"{args.built}/bin/reelgrad", "train", f"{ROOT}/examples/sr2x.toml", *options], check=True,
                       stderr=subprocess.DEVNULL)
        lines = map(json.loads, pathlib.Path(folder, "run", "metrics.jsonl").read_text().splitlines())
        rates = [line["it_per_s"] for line in lines if "it_per_s" in line]
    return statistics.median(rates[1:])  # the first quarter holds warm-up and the first decoding


def peer(args, network):
    out = subprocess.run([sys.executable, f"{ROOT}/bench/peers/train_loop.py", *network, "--batch", str(args.batch), "--crop",
                          str(args.crop), "--steps", str(args.steps)], check=True, capture_output=True, text=True).stdout
    return float(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--built", default=f"{ROOT}/build/release")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--convs", type=int, default=16)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--crop", type=int, default=64)
    args = parser.parse_args()
    network = ["--features", str(args.features), "--convs", str(args.convs)]
    pairs = [(ours(args), peer(args, network)) for _ in range(args.rounds)]
    mine, theirs = (statistics.median(column) for column in zip(*pairs))
    name = f"train compact {args.features}/{args.convs} batch {args.batch} crop {args.crop}"
    print(json.dumps({"rows": [{"name": name, "ours": mine, "peer": theirs, "peer_name": "usual PyTorch loop, no loading",
                                "ratio": mine / theirs, "unit": "it/s"}]}, indent=2))


if __name__ == "__main__":
    main()
