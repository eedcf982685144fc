#!/usr/bin/env bash
# Runs the tests that need a CUDA card, and benchmarks, from an existing build folder: on a machine that has only those
# binaries, Python with torch and VapourSynth, and perhaps no ctest.
#   scripts/gpu_test.sh [--built DIR] [--bench NAME]...
#   --built DIR    build folder (default: build/release)
#   --bench NAME   after the tests, also run DIR/bench/NAME or bench/NAME.py (may be given several times)
# torch is found by REELGRAD_TORCH, VapourSynth by VSSCRIPT_PATH, clips by REELGRAD_CLIPS, as by reelgrad itself.
# The last line is `N passed, N failed`; the status is 0 only if something passed and nothing failed.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

built=$root/build/release
benchmarks=()
while [ $# -gt 0 ]; do
  case $1 in
    --built) built=$(cd "${2:?--built needs a folder}" && pwd); shift 2 ;;
    --bench) benchmarks+=("${2:?--bench needs a name}"); shift 2 ;;
    *) echo "usage: scripts/gpu_test.sh [--built DIR] [--bench NAME]..." >&2; exit 2 ;;
  esac
done

# The programs' own RPATH names the build machine's torch, which is not here.
[ -z "${REELGRAD_TORCH:-}" ] || export LD_LIBRARY_PATH="$REELGRAD_TORCH/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export PYTHONDONTWRITEBYTECODE=1
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT

# A program that dies leaves no results file: that is one failure, with its last words on the screen.
run_tests() {
  local program name status
  for program in "$built"/tests/*_test; do
    [ -x "$program" ] || die "no test programs in $built/tests: build them, or name the build folder with --built"
    name=$(basename "$program")
    if ! "$program" --gtest_list_tests --gtest_filter='*Gpu*' >"$results/list" 2>&1; then
      echo "$name does not start: $(tail -n 1 "$results/list")" >"$results/$name.crash"
      continue
    fi
    grep -q '^  ' "$results/list" || continue  # no such test in it
    say "$name"
    status=0
    "$program" --gtest_filter='*Gpu*' --gtest_brief=1 --gtest_output="xml:$results/$name.xml" || status=$?
    [ -e "$results/$name.xml" ] || echo "$name ended with status $status" >"$results/$name.crash"
  done
}

run_benchmark() {
  say "benchmark $1"
  if [ -x "$built/bench/$1" ]; then
    "$built/bench/$1"
  elif [ -e "$root/bench/$1.py" ]; then
    "${REELGRAD_PYTHON:-python3}" "$root/bench/$1.py"
  else
    die "no benchmark $1: neither $built/bench/$1 nor bench/$1.py exists"
  fi
}

run_tests
failed_benchmarks=0
for name in ${benchmarks[@]+"${benchmarks[@]}"}; do
  (run_benchmark "$name") || failed_benchmarks=$((failed_benchmarks + 1))
done

"${REELGRAD_PYTHON:-python3}" - "$results" "$failed_benchmarks" <<'PY'
import pathlib
import sys
import xml.etree.ElementTree as xml

folder, failed_benchmarks = pathlib.Path(sys.argv[1]), int(sys.argv[2])
passed, failed = 0, failed_benchmarks
for file in sorted(folder.glob("*.xml")):
    for test in xml.parse(file).getroot().iter("testcase"):
        name = f"{file.stem}: {test.get('classname')}.{test.get('name')}"
        skipped = test.find("skipped")
        if test.find("failure") is not None:
            failed += 1
            print(f"FAILED: {name}")
        elif skipped is not None:
            print(f"skipped: {name}: {(skipped.get('message') or 'no reason given').strip().splitlines()[-1]}")
        else:
            passed += 1
for file in sorted(folder.glob("*.crash")):
    failed += 1
    print(f"FAILED: {file.read_text().strip()}")
print(f"{passed} passed, {failed} failed")
sys.exit(1 if failed or not passed else 0)
PY
