#!/usr/bin/env bash
# Formats the C++ and CUDA files in place, as .clang-format says.
#   scripts/format.sh            every file that git knows or could add
#   scripts/format.sh FILE...    these files
#   scripts/format.sh --check    changes nothing; status 1 and a list if a file is not formatted
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

command -v clang-format >/dev/null || die "clang-format is missing: apt-get install clang-format"
mode=(-i)
if [ "${1:-}" = --check ]; then
  mode=(--dry-run --Werror)
  shift
fi
if [ $# -eq 0 ]; then
  cd "$root"
  mapfile -t files < <(git ls-files --cached --others --exclude-standard -- '*.h' '*.cpp' '*.cu' '*.cuh')
  set -- "${files[@]}"
fi
clang-format "${mode[@]}" -- "$@"
