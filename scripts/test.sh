#!/usr/bin/env bash
# Sets up, builds the preset `release` and runs every test that this machine can run. Further words go to ctest:
#   scripts/test.sh              everything; tests that need a CUDA card are skipped where there is none
#   scripts/test.sh -L host      the tests labelled host (also: torch, gpu, slow); -R NAME by name
# The last line is `N passed, N failed`; the status is 0 only if something ran and nothing failed.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

results=$root/build/release/test-results.xml

"$root/scripts/setup.sh"
build_preset release
"$root/scripts/check_layers.sh"

PATH=$(dirname "$(environment_python)"):$PATH
rm -f "$results"
status=0
ctest --test-dir "$root/build/release" -j2 --output-on-failure --no-tests=error --output-junit "$results" "$@" || status=$?
[ -e "$results" ] || die "ctest ended with status $status and left no results"

# ctest counts a skipped test as passed in its own words; here it is neither.
"$(environment_python)" - "$results" <<'PY'
import sys
import xml.etree.ElementTree as xml

cases = xml.parse(sys.argv[1]).getroot().findall("testcase")
skipped = [case for case in cases if case.get("status") in ("notrun", "disabled") or case.find("skipped") is not None]
failed = [case for case in cases if case not in skipped and case.get("status") != "run"]
for title, group in (("skipped", skipped), ("FAILED", failed)):
    for case in group:
        print(f"{title}: {case.get('name')}")
passed = len(cases) - len(skipped) - len(failed)
if skipped:
    print(f"{len(skipped)} of {len(cases)} tests were skipped")
print(f"{passed} passed, {len(failed)} failed")
sys.exit(1 if failed or not passed else 0)
PY
