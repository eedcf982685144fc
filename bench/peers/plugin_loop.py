"""A filter in VapourSynth that restores frames which lie in memory. Prints one line of JSON: {"fps": …}, or
{"missing": …} where the filter is not installed.

--filter reelgrad   core.reelgrad.Model with the network of --model
--filter ort        core.ort.Model of vs-mlrt with the same network as --model, an .onnx. It takes float R'G'B', so a clip
                    of another format goes there and back by VapourSynth's own resize, as its users do it"""
import argparse
import json
import time

import vapoursynth as vs

core = vs.core


def frames_in_memory(args):
    clip = core.std.BlankClip(format=getattr(vs, args.format), width=args.width, height=args.height, length=100000,
                              keep=True)
    return clip if clip.format.color_family == vs.RGB else core.std.SetFrameProps(clip, _Matrix=1, _Range=0)


def by_reelgrad(clip, args):
    if not hasattr(core, "reelgrad"):
        core.std.LoadPlugin(args.plugin)
    return core.reelgrad.Model(clip, args.model)


def by_ort(clip, args):
    restored = core.ort.Model(core.resize.Bicubic(clip, format=vs.RGBS), network_path=args.model)
    if clip.format.color_family == vs.RGB:
        return restored
    return core.resize.Bicubic(restored, format=clip.format.id, matrix=1)


def rate(clip, seconds):
    frames, start = 0, None
    for _ in clip.frames(prefetch=2 * core.num_threads):
        if start is None:
            start = time.perf_counter()
            continue
        frames += 1
        if time.perf_counter() - start > seconds:
            break
    return frames / (time.perf_counter() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filter", choices=["reelgrad", "ort"], required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--plugin", help="the file of core.reelgrad, where it is not installed")
    parser.add_argument("--format", default="YUV420P8")
    parser.add_argument("--width", type=int, required=True)
    parser.add_argument("--height", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=5)
    args = parser.parse_args()
    if args.filter == "ort" and not hasattr(core, "ort"):
        print(json.dumps({"missing": "vapoursynth-mlrt-ort"}))
        return
    make = by_reelgrad if args.filter == "reelgrad" else by_ort
    print(json.dumps({"fps": rate(make(frames_in_memory(args), args), args.seconds)}))


main()
