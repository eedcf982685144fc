"""Networks of several frames from start to end: the three that restore the middle one of five, and one of the user's that
takes three."""
import json
import subprocess
import sys
import unittest

from support import REELGRAD, ProgramTest, ffprobe

# Input and target of one size, for networks that do not enlarge.
SAME_SIZE = "small = core.std.Convolution(clip, [1] * 9)"

# [N, 3, C, H, W] -> [N, C, 2 H, 2 W]: from all three frames.
THREE_FRAMES = """
import sys
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(9, 8, 3, padding=1)
        self.last = nn.Conv2d(8, 12, 3, padding=1)

    def forward(self, x):
        return nn.functional.pixel_shuffle(self.last(nn.functional.silu(self.first(x.flatten(1, 2)))), 2)


torch.manual_seed(1)
torch.jit.script(Net()).save(sys.argv[1])
"""

STEPS = 3
SETTINGS = [f"run.steps={STEPS}", "run.log_every=1", "data.batch=1", "data.segment_frames=6", "data.pool_frames=6",
            "validation.frames=11:", f"validation.every={STEPS}",
            f"checkpoint.every={STEPS}"]


class WindowRun(ProgramTest):
    window = 5
    scale = 2

    def prepare(self, model, extra=""):
        self.write_pair(extra=extra)
        config = self.write_config()
        config.write_text(config.read_text().replace("features = 8\nconvs = 1", "\n".join(model))
                          .replace("[data]", f"[data]\nwindow = {self.window}"))

    def train(self, name, *args):
        settings = [word for setting in SETTINGS for word in ("--set", setting)]
        self.run_program("train", "small.toml", "--set", f"run.dir={self.folder / name}", *settings, *args)
        return self.folder / name

    def weights(self, run, name="model.safetensors"):
        from safetensors.torch import load_file

        return load_file(run / "checkpoints" / f"step-{STEPS:06d}" / name)

    def assert_resumed_run_is_bit_equal(self, unbroken):
        run = self.train("resumed", "--stop-at", "1")
        self.train("resumed", "--resume")
        for name in ("model.safetensors", "training.safetensors"):
            expected, found = self.weights(unbroken, name), self.weights(run, name)
            self.assertEqual(list(found), list(expected))
            for key, value in expected.items():
                self.assertTrue(found[key].equal(value), f"{name}: {key} differs")

    def frames_of(self, model, clip, *args):
        done = subprocess.run([str(REELGRAD), "apply", str(model), clip, "-o", "-", "--device", "cpu", *args],
                              cwd=self.folder, capture_output=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.split(b"FRAME\n")[1:]

    def assert_applied(self, run):
        """A frame is the same in any part of the clip, and depends on its neighbours."""
        few = self.frames_of(run, "pair.vpy", "--frames", "4:7")
        self.assertEqual(len(few), 3)
        self.assertEqual(self.frames_of(run, "pair.vpy", "--frames", "6:7"), few[2:])
        self.run_program("apply", run, "pair.vpy", "-o", "out.mkv", "--device", "cpu", "--frames", "10:12")
        (stream,) = ffprobe(self.folder / "out.mkv", ["-count_frames", "-show_entries", "stream=width,nb_read_frames"])["streams"]
        self.assertEqual((stream["width"], stream["nb_read_frames"]), (128, "2"))
        black = "small = small[:5] + core.std.BlankClip(small, length=1) + small[6:]\nclip.set_output(0)"
        self.write("black.vpy", (self.folder / "pair.vpy").read_text().replace("clip.set_output(0)", black))
        self.assertNotEqual(self.frames_of(run, "black.vpy", "--frames", "6:7"), few[2:])
        return few[2:]

    def assert_validated(self, run):
        done = self.run_program("validate", run, "pair.vpy", "--frames", "10:12", "--json", "--device", "cpu")
        result = json.loads(done.stdout)
        self.assertEqual(result["clips"][0]["frames"], 2)
        self.assertGreater(result["ours"]["psnr_rgb"], 3)
        self.run_program("preview", run, "pair.vpy", "--frame", "11", "-o", "a.png", "--device", "cpu")

    def assert_seen(self, path, arch):
        seen = json.loads(self.run_program("inspect", path, "--json").stdout)
        self.assertEqual((seen["arch"], seen["scale"], seen["window"]), (arch, self.scale, self.window))
        return seen

    def assert_exported(self, run, arch, sixth_frame):
        expected = self.weights(run)
        for name in ("model.safetensors", "model.pth", "half.pth"):
            self.run_program("export", run, "-o", name, *(["--half"] if name.startswith("half") else []))
            self.assert_seen(name, arch)
        self.assertEqual(self.frames_of("model.pth", "pair.vpy", "--frames", "6:7"), sixth_frame)
        import torch

        state = torch.load(self.folder / "model.pth", weights_only=True)["params"]
        self.assertEqual(sorted(state), sorted(expected))
        # Known by their keys alone, as files of other trainers are.
        torch.save(state, self.folder / "theirs.pth")
        self.assert_seen("theirs.pth", arch)
        self.run_program("export", run, "-o", "model.onnx", "--check", "--python", sys.executable)

    def assert_whole_way(self, arch, model, extra=""):
        self.prepare([f'arch = "{arch}"', f"scale = {self.scale}", *model], extra)
        run = self.train("run")
        self.assert_resumed_run_is_bit_equal(run)
        self.assert_seen(run, arch)
        sixth_frame = self.assert_applied(run)
        self.assert_validated(run)
        self.assert_exported(run, arch, sixth_frame)


class Windows(WindowRun):
    def test_temporalspan(self):
        self.assert_whole_way("temporalspan", ["features = 8", "frame_features = 2"])

    def test_fastdvdnet(self):
        self.scale = 1
        self.assert_whole_way("fastdvdnet", ["features = 4", "sigma = 20"], extra=SAME_SIZE)

    def test_another_window_is_refused(self):
        self.prepare(['arch = "temporalspan"', "scale = 2"])
        done = self.run_program("train", "small.toml", "--set", "data.window=3", expect=2)
        self.assert_one_sentence(done.stderr, "temporalspan", "data.window = 3", "5")
        self.assertFalse((self.folder / "run").exists())

    def test_three_frames_of_a_torchscript_file(self):
        self.window = 3
        script = self.write("net.py", THREE_FRAMES)  # TorchScript reads the source
        subprocess.run([sys.executable, "-W", "ignore", script, self.folder / "net.pt"], check=True)
        self.prepare(['arch = "torchscript"', 'file = "net.pt"', "scale = 2"])
        run = self.train("run")
        self.assert_resumed_run_is_bit_equal(run)
        self.assert_seen(run, "torchscript")
        self.assert_applied(run)
        self.assert_validated(run)
        self.run_program("export", run, "-o", "model.onnx", "--check", "--python", sys.executable)


class LargeWindow(WindowRun):
    """It takes seconds a frame: what it shares with the others is left to them."""

    def test_tscunet(self):
        self.prepare(['arch = "tscunet"', "scale = 2", "blocks = 1"])
        run = self.train("run")
        self.assert_seen(run, "tscunet")
        (frame,) = self.frames_of(run, "pair.vpy", "--frames", "6:7")
        self.run_program("export", run, "-o", "model.pth")
        self.assert_seen("model.pth", "tscunet")
        self.assertEqual(self.frames_of("model.pth", "pair.vpy", "--frames", "6:7"), [frame])


if __name__ == "__main__":
    unittest.main()
