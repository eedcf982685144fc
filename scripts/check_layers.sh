#!/usr/bin/env bash
# Checks the #include lines of reelgrad/ against the order of its folders, and that special headers stay in their rooms:
#   scripts/check_layers.sh [ROOT]   ROOT: a folder that holds reelgrad/ (default: this checkout)
# A folder includes only from itself and the folders before it in `order`; cli/ and plugin/ only base, config, doctor,
# clip and engine/engine.h. Prints every violation as `file:line: sentence` and ends with status 1 if there was one.
set -euo pipefail
root=$(cd "${1:-$(dirname "${BASH_SOURCE[0]}")/..}" && pwd)
cd "$root"
[ -d reelgrad ] || { echo "error: $root has no folder reelgrad" >&2; exit 2; }

# shellcheck disable=SC2016
find reelgrad -mindepth 2 -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0 | sort -z |
  xargs -0 awk '
BEGIN {
  count = split("base config doctor clip kernels frames nn data train record restore engine cli plugin", order, " ")
  for (i = 1; i <= count; ++i) place[order[i]] = i
  first_torch = place["frames"]  # from here to engine/ files see the include folders of torch
}

function reject(sentence) {
  printf "%s:%d: %s\n", FILENAME, FNR, sentence
  ++violations
}

function outside_engine() { return folder == "cli" || folder == "plugin" }
function sees_torch() { return place[folder] >= first_torch && !outside_engine() }
function is_test() { return FILENAME ~ /_test\.(cpp|cu)$|\/testdata\// }

# An include of our own: reelgrad/FOLDER/...
function check_own(header,    parts, other) {
  split(header, parts, "/")
  other = parts[2]
  if (!(other in place)) {
    reject("includes " header ", which is in no known folder")
  } else if (other == folder) {
    return
  } else if (outside_engine() && place[other] > place["clip"] && header != "reelgrad/engine/engine.h") {
    reject(folder "/ may include base, config, doctor, clip and engine/engine.h, not " header)
  } else if (place[other] > place[folder]) {
    reject(folder "/ comes before " other "/ and may not include " header)
  }
}

function check_foreign(header) {
  if (header ~ /^(torch|ATen|c10|caffe2)\//) {
    if (!sees_torch()) reject("torch begins at frames/ and ends at engine/: " folder "/ may not include " header)
    else if (FILENAME == "reelgrad/engine/engine.h") reject("the seam is free of torch: no " header)
  }
  if (header ~ /^(cuda|cuda_[a-z0-9_]+|cudnn[a-z_]*|nvml)\.h$/ && (place[folder] < place["kernels"] || outside_engine()))
    reject(folder "/ must work without CUDA: no " header)
  if (header ~ /^spdlog\// && FILENAME != "reelgrad/base/log.cpp")
    reject("spdlog lives in base/log.cpp alone: the include folders of torch carry another fmt")
  if (header ~ /\.pb\.h$|^google\/protobuf\// && sees_torch())
    reject("the include folders of torch carry another protobuf: " header " belongs in a file that does not see them")
  if (header ~ /^(unistd|fcntl|spawn|poll|termios|dirent|pthread|pwd|dlfcn|link|sys\/[a-z_]+)\.h$/ &&
      folder != "base" && folder != "doctor" && !is_test())
    reject("POSIX calls live in base/ and doctor/: no " header)
}

FNR == 1 { split(FILENAME, path, "/"); folder = path[2] }
FNR == 1 && !(folder in place) { reject("is in no known folder: add " folder " to the order in scripts/check_layers.sh") }

/^[ \t]*#[ \t]*include[ \t]*[<"]/ && (folder in place) {
  ++includes
  header = $0
  sub(/^[^<"]*[<"]/, "", header)
  sub(/[>"].*$/, "", header)
  if (header ~ /^reelgrad\//) check_own(header)
  else if ($0 ~ /"/) reject("write the include from the root: \"reelgrad/" folder "/" header "\"")
  else check_foreign(header)
}

END {
  if (violations) exit 1
  printf "layers: %d includes, all in order\n", includes
}
'
