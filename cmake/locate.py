"""Print where this environment keeps torch and vapoursynth, without importing them: a CMake list."""
import importlib.util
import runpy
import sys


def folder(name):
    spec = importlib.util.find_spec(name)
    return spec.submodule_search_locations[0] if spec and spec.submodule_search_locations else ""


def torch_build():
    """What torch's version.py says: "__version__" and "cuda"; nothing without torch."""
    torch = folder("torch")
    return runpy.run_path(torch + "/version.py") if torch else {}


def torch_version():
    return torch_build().get("__version__", "")


if __name__ == "__main__":
    torch, vapoursynth, nvidia = folder("torch"), folder("vapoursynth"), folder("nvidia")
    if not torch or not vapoursynth:
        sys.exit(1)
    build = torch_build()
    print(torch, build["__version__"], build["cuda"] or "none", vapoursynth, nvidia or "none", sep=";")
