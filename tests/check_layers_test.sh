#!/usr/bin/env bash
# scripts/check_layers.sh on planted trees: each violation is found, named with its place, and makes the status 1.
set -euo pipefail
check=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/scripts/check_layers.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failures=0

# One file of a fresh tree: plant FILE LINE
plant() {
  rm -rf "$tree/reelgrad"
  mkdir -p "$tree/$(dirname "$1")"
  printf '// A comment above.\n%s\n' "$2" >"$tree/$1"
}

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

accepts() {
  plant "$1" "$2"
  "$check" "$tree" >"$tree/out" 2>&1 || fail "$1 with $2 was rejected: $(cat "$tree/out")"
}

rejects() {
  plant "$1" "$2"
  if "$check" "$tree" >"$tree/out" 2>&1; then
    fail "$1 with $2 was accepted"
  elif ! grep -qF "$1:2: $3" "$tree/out"; then
    fail "$1 with $2: expected \"$1:2: $3\", got: $(cat "$tree/out")"
  fi
}

accepts reelgrad/clip/clip.cpp '#include "reelgrad/base/error.h"'
accepts reelgrad/clip/clip.cpp '#include "reelgrad/clip/clip.h"'
accepts reelgrad/engine/run.cpp '#include "reelgrad/train/trainer.h"'
accepts reelgrad/frames/pool.cpp '#include <torch/torch.h>'
accepts reelgrad/kernels/cuda/gather.cu '#include <cuda_runtime.h>'
accepts reelgrad/cli/train.cpp '#include "reelgrad/engine/engine.h"'
accepts reelgrad/cli/train.cpp '#include "reelgrad/config/config.h"'
accepts reelgrad/base/log.cpp '#include <spdlog/spdlog.h>'
accepts reelgrad/base/process.cpp '#include <spawn.h>'
accepts reelgrad/doctor/probes/probes.cpp '#include <sys/utsname.h>'
accepts reelgrad/clip/clip_test.cpp '#include <sys/wait.h>'
accepts reelgrad/cli/main.cpp '// #include "reelgrad/nn/network.h"'

rejects reelgrad/clip/clip.cpp '#include "reelgrad/frames/convert.h"' 'clip/ comes before frames/'
rejects reelgrad/base/error.h '#  include   "reelgrad/config/config.h"' 'base/ comes before config/'
rejects reelgrad/train/trainer.cpp '#include "reelgrad/record/run_folder.h"' 'train/ comes before record/'
rejects reelgrad/kernels/cuda/gather.cu '#include "reelgrad/frames/convert.h"' 'kernels/ comes before frames/'
rejects reelgrad/cli/train.cpp '#include "reelgrad/train/trainer.h"' 'cli/ may include base, config, doctor, clip'
rejects reelgrad/cli/train.cpp '#include "reelgrad/engine/run.h"' 'cli/ may include base, config, doctor, clip'
rejects reelgrad/plugin/model.cpp '#include "reelgrad/cli/common.h"' 'plugin/ may include base, config, doctor, clip'
rejects reelgrad/plugin/model.cpp '#include "reelgrad/kernels/color.h"' 'plugin/ may include base, config, doctor, clip'
rejects reelgrad/kernels/color.cpp '#include <torch/torch.h>' 'torch begins at frames/'
rejects reelgrad/cli/train.cpp '#include <ATen/ATen.h>' 'torch begins at frames/'
rejects reelgrad/engine/engine.h '#include <c10/core/Device.h>' 'the seam is free of torch'
rejects reelgrad/clip/clip.cpp '#include <cuda_runtime_api.h>' 'clip/ must work without CUDA'
rejects reelgrad/plugin/model.cpp '#include <cuda.h>' 'plugin/ must work without CUDA'
rejects reelgrad/nn/weights.cpp '#include <spdlog/spdlog.h>' 'spdlog lives in base/log.cpp alone'
rejects reelgrad/record/events.cpp '#include <google/protobuf/message.h>' 'the include folders of torch carry another'
rejects reelgrad/record/events.cpp '#include <onnx.pb.h>' 'the include folders of torch carry another'
rejects reelgrad/clip/nut.cpp '#include <unistd.h>' 'POSIX calls live in base/ and doctor/'
rejects reelgrad/record/run_folder.cpp '#include <sys/stat.h>' 'POSIX calls live in base/ and doctor/'
rejects reelgrad/clip/clip.cpp '#include "clip.h"' 'write the include from the root'
rejects reelgrad/clip/clip.cpp '#include "reelgrad/utils/misc.h"' 'includes reelgrad/utils/misc.h, which is in no known'
rejects reelgrad/base/log.h '#include <spdlog/spdlog.h>' 'spdlog lives in base/log.cpp alone'

[ "$failures" -eq 0 ] || { echo "$failures failed"; exit 1; }
echo "all planted trees were judged rightly"
