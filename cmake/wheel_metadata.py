"""What pip is told of the wheel that this environment gives: it needs the torch that it is built against."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "cmake"))
from locate import torch_version  # noqa: E402


def dynamic_metadata(settings, project):
    torch = torch_version()
    if not torch:
        sys.exit("reelgrad is built against the PyTorch of the environment that it goes into, and there is none: install "
                 "torch first (pip install torch==2.11.0 vapoursynth), then pip install --no-build-isolation .")
    release = torch.split("+")[0]
    version = re.search(r"project\(reelgrad VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
    return {"version": version, "dependencies": [f"torch=={release}", "vapoursynth>=81"]}
