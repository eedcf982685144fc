"""The frame path beside the usual PyTorch recipe, both in one run on this machine.

    python bench/frames.py [--built build/release] [CLIP.mp4]      CLIP: H.264, decoded on the card
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def ours(built, clips):
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        subprocess.run([f"{built}/bench/frames_bench", f"--benchmark_out={out.name}", *clips], check=True, stdout=subprocess.DEVNULL)
        return json.load(open(out.name))["benchmarks"]


def recipe():
    done = subprocess.run([sys.executable, f"{ROOT}/bench/peers/frames_recipe.py", "--json"], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["fps"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--built", default=f"{ROOT}/build/release")
    parser.add_argument("clips", nargs="*")
    args = parser.parse_args()
    peer = recipe()
    print(f"{'the recipe, RGB24 1080p':<50} {peer:>9.0f} frames/s")
    for row in ours(args.built, args.clips):
        name = row["name"].split("/iterations")[0]
        if "items_per_second" not in row:
            print(f"{name:<50} {row['real_time']:>9.1f} {row['time_unit']}")
            continue
        rate = row["items_per_second"]
        note = f"  {row['cores']:.2f} cores a stream" if "cores" in row else f"  {rate / peer:.1f} x the recipe" if "1080p" in name else ""
        print(f"{name:<50} {rate:>9.0f} frames/s{note}")


if __name__ == "__main__":
    main()
