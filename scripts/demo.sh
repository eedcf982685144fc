#!/usr/bin/env bash
# The main job from start to end: set up and build, train a 2x super-resolution network on a real clip, validate it on
# frames that training never saw, upscale the clip.
#   scripts/demo.sh               everything
#   scripts/demo.sh --built DIR   with the binaries in DIR, no setup, no build, no network
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
unseen="0.8:"  # the last fifth of the clip

build_everything() {
  "$root/scripts/setup.sh"
  build_preset release reelgrad reelgrad_engine reelgrad_vs
  PATH="$(dirname "$(environment_python)"):$PATH"
  built="$root/build/release"
}

# A field of a JSON document on stdin: json '["ours"]["psnr_rgb"]'.
json() { python3 -c "import json, sys; print(json.load(sys.stdin)$1)"; }

built=""
case "${1:-}" in
  "") build_everything ;;
  --built) built=$(cd "${2:?usage: demo.sh --built DIR}" && pwd) ;;
  *) echo "usage: demo.sh [--built DIR]" >&2; exit 2 ;;
esac
reelgrad="$built/bin/reelgrad"

cards=$("$reelgrad" devices --json | python3 -c 'import json, sys; print(sum(d["will_run"] for d in json.load(sys.stdin)))')
if [ "$cards" -gt 0 ]; then
  say "training on the card: Compact 2x, 64 features, 16 convolutions"
  network=(--set model.features=64 --set model.convs=16 --set run.steps=6000 --set validation.every=3000)
else
  say "training without a card: Compact 2x, 24 features, 6 convolutions (about a minute and a half)"
  network=(--set model.features=24 --set model.convs=6 --set run.steps=1000 --set validation.every=1000
           --set data.batch=8 --set data.crop_px=48 --set optimizer.lr=1e-3 --set ema.decay=0.99)
fi

run="$root/runs/demo"
started=$SECONDS
"$reelgrad" train "$root/examples/sr2x.toml" --fresh --set run.name=demo --set run.dir="$run" "${network[@]}"
trained=$((SECONDS - started))

say "validating on frames that training never saw ($unseen)"
scores=$("$reelgrad" validate "$run" "$root/examples/sr2x.vpy" --frames "$unseen" --json)
ours=$(json '["ours"]["psnr_rgb"]' <<<"$scores")
bicubic=$(json '["bicubic"]["psnr_rgb"]' <<<"$scores")
measured=$(json '["clips"][0]["frames"]' <<<"$scores")

clip_info=$("$reelgrad" inspect "$root/examples/sr2x.vpy" --json)
frames=$(json '["outputs"][0]["frames"]' <<<"$clip_info")
first_unseen=$((frames - measured))

say "one unseen frame side by side, and the upscaled clip"
picture="$run/side-by-side.png"
video="$run/upscaled.mkv"
"$reelgrad" preview "$run" "$root/examples/sr2x.vpy" --frame "$first_unseen" -o "$picture"
"$reelgrad" apply "$run" "$root/examples/sr2x.vpy" -o "$video"

say "done (training took $trained s)"
echo "run folder:    $run"
echo "side by side:  $picture (input | bicubic | ours | target)"
echo "upscaled clip: $video"
python3 -c "print(f'{$ours - $bicubic:+.2f} dB over bicubic (frames $first_unseen-$((frames - 1)))')"
