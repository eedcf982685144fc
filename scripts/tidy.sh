#!/usr/bin/env bash
# Runs clang-tidy, as .clang-tidy says, with the compile commands of build/release (build it first).
#   scripts/tidy.sh            the .cpp files that differ from the last commit
#   scripts/tidy.sh --all      every .cpp file (long)
#   scripts/tidy.sh FILE...    these files
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

command -v clang-tidy >/dev/null || die "clang-tidy is missing: apt-get install clang-tidy"
[ -e "$root/build/release/compile_commands.json" ] || die "no build/release/compile_commands.json: cmake --preset release"
cd "$root"
case ${1:-} in
  --all) mapfile -t files < <(git ls-files -- 'reelgrad/*.cpp') ;;
  "") mapfile -t files < <({ git diff --name-only HEAD -- 'reelgrad/*.cpp'
                             git ls-files --others --exclude-standard -- 'reelgrad/*.cpp'; } | sort -u) ;;
  *) files=("$@") ;;
esac
if [ ${#files[@]} -eq 0 ]; then
  say "No changed .cpp files."
  exit 0
fi
# gcc's own flags, and its precompiled header, mean nothing to clang.
commands=$(mktemp -d)
trap 'rm -rf "$commands"' EXIT
sed -E 's/ -fno-gnu-unique//g; s/ -Winvalid-pch//g; s/ -include [^ ]*cmake_pch\.hxx/ -include torch\/torch.h/g' \
  build/release/compile_commands.json >"$commands/compile_commands.json"
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" clang-tidy -p "$commands" --quiet
