"""Check an environment against requirements on stdin, for setup.sh: print what is missing or too old, exit 1 if anything.

torch must be one of the two versions that the code compiles against; of the rest, a newer version is fine.
"""
import re
import sys
from importlib.metadata import PackageNotFoundError, version

SUPPORTED_TORCH = ("2.10.0", "2.11.0")
MINIMUM_CMAKE = "3.26"


def numbers(text):
    return [int(part) for part in re.findall(r"\d+", text.partition("+")[0])]


def problem_of(name, wanted):
    try:
        found = version(name)
    except PackageNotFoundError:
        return None if name == "cmake" else f"{name}=={wanted} is missing"  # CMake may also be the system's
    if name == "torch" and found.partition("+")[0] not in SUPPORTED_TORCH:
        return f"torch is {found}, allowed: {' and '.join(SUPPORTED_TORCH)}"
    if name == "VapourSynth" and numbers(found) < numbers(wanted):
        return f"{name} is {found}, {wanted} or newer is needed"
    if name == "cmake" and numbers(found) < numbers(MINIMUM_CMAKE):
        return f"cmake is {found}, {MINIMUM_CMAKE} or newer is needed"
    return None


def main():
    pins = re.findall(r"^([\w-]+)==([\w.]+)", sys.stdin.read(), re.MULTILINE)
    problems = [problem for problem in (problem_of(*pin) for pin in pins) if problem]
    if sys.version_info < (3, 12):
        problems.insert(0, f"Python is {sys.version.split()[0]}, 3.12 or newer is needed")
    print("; ".join(problems))
    sys.exit(1 if problems else 0)


main()
