# What the other scripts share; source it.
# shellcheck shell=bash
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '== %s\n' "$*" >&2; }

die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# The Python that holds torch and VapourSynth: the one named by REELGRAD_PYTHON, or the checkout's own.
environment_python() { printf '%s\n' "${REELGRAD_PYTHON:-$root/.venv/bin/python}"; }

# Configures and builds preset $1; further words are targets (default: everything).
build_preset() {
  local preset=$1 path
  path=$(dirname "$(environment_python)"):$PATH
  shift
  cd "$root"
  env PATH="$path" cmake --preset "$preset"
  env PATH="$path" cmake --build --preset "$preset" ${1:+--target "$@"}
}
