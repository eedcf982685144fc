"""Models as ONNX files, as their users run them: in onnxruntime, and in a VapourSynth script through vs-mlrt's plugin."""
import json
import subprocess
import sys

from support import ProgramTest

# Prints the largest difference between the plugin's frames and onnxruntime's own.
SCRIPT = """
import sys
import numpy
import onnxruntime
import vapoursynth as vs

core = vs.core
model, kind, values = sys.argv[1], *((numpy.float16, vs.RGBH) if sys.argv[2] == "half" else (numpy.float32, vs.RGBS))
script = sys.argv[3]
exec(compile(open(script).read(), script, "exec"))
clip = vs.get_output(1).clip.resize.Bicubic(format=values, matrix_in=1)
restored = core.ort.Model([clip], network_path=model)
session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])


def planes(frame):
    return numpy.stack([numpy.asarray(frame[plane]) for plane in range(3)])


largest = 0.0
for n in range(3):
    expected = session.run(None, {"input": planes(clip.get_frame(n))[None].astype(kind)})[0][0]
    output = planes(restored.get_frame(n))
    assert output.shape == expected.shape, (output.shape, expected.shape)
    largest = max(largest, float(numpy.abs(output.astype(numpy.float32) - expected.astype(numpy.float32)).max()))
print(largest, restored.width, restored.height, restored.format.name)
"""


class Onnx(ProgramTest):
    def setUp(self):
        super().setUp()
        self.run_folder = self.trained_run()

    def export(self, *args, **options):
        return self.run_program("export", self.run_folder, "-o", "model.onnx", "--python", sys.executable, *args, **options)

    def in_vapoursynth(self, kind):
        self.write("script.py", SCRIPT)
        done = subprocess.run([sys.executable, "script.py", "model.onnx", kind, "pair.vpy"], cwd=self.folder, text=True,
                              capture_output=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        difference, *shape = done.stdout.split()
        return float(difference), shape

    def test_runs_in_vapoursynth_at_any_size(self):
        self.export("--check")
        difference, shape = self.in_vapoursynth("single")
        self.assertEqual(shape, ["128", "96", "RGBS"])
        self.assertLess(difference, 1e-5)

    def test_runs_in_vapoursynth_in_half_at_one_size(self):
        self.export("--check", "--half", "--size", "64x48", "--opset", "20")
        difference, shape = self.in_vapoursynth("half")
        self.assertEqual(shape, ["128", "96", "RGBH"])
        self.assertLess(difference, 2e-3)

    def test_check_says_how_near_it_is_and_every_opset_passes(self):
        import onnx

        for opset in range(17, 21):
            done = self.export("--check", "--dynamic", "--opset", opset)
            self.assertIn("in onnxruntime", done.stderr)
            model = onnx.load(self.folder / "model.onnx")
            self.assertEqual(model.opset_import[0].version, opset)
        metadata = {entry.key: entry.value for entry in model.metadata_props}
        self.assertEqual((metadata["arch"], metadata["scale"], metadata["color"]), ("compact", "2", "rgb"))
        self.assertEqual(json.loads(metadata["reelgrad"])["arch"], "compact")

    def test_what_cannot_be_is_said(self):
        done = self.run_program("export", self.run_folder, "-o", "model.pth", "--opset", "18", expect=2)
        self.assert_one_sentence(done.stderr, "--opset is for .onnx")
        self.assertFalse((self.folder / "model.pth").exists())
        for size in ("48", "48x", "0x64", "48x64x3", "ax4"):
            self.assert_one_sentence(self.export("--size", size, expect=2).stderr, f"--size {size}", "WIDTHxHEIGHT")
        self.run_program("export", self.run_folder, "-o", "model.onnx", "--opset", "21", expect=2)
        self.run_program("export", self.run_folder, "-o", "model.onnx", "--size", "4x4", "--dynamic", expect=2)
        done = self.run_program("export", self.run_folder, "-o", "model.onnx", "--check", "--python", "/nonexistent/python",
                                expect=1)
        self.assert_one_sentence(done.stderr, "--python /nonexistent/python", "onnxruntime")
        self.assertFalse((self.folder / "model.onnx").exists())
        done = self.run_program("export", self.run_folder, "-o", "nowhere/model.onnx", expect=1)
        self.assert_one_sentence(done.stderr, "nowhere/model.onnx", "no folder")

    def test_a_torchscript_file(self):
        import torch

        # While an operation of a residual's inside runs, its input waits on the interpreter's stack.
        class Network(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.head = torch.nn.Conv2d(3, 8, 3, padding=1)
                self.body = torch.nn.Sequential(torch.nn.PReLU(8), torch.nn.Conv2d(8, 8, 3, padding=1), torch.nn.BatchNorm2d(8),
                                                torch.nn.LeakyReLU(0.1, inplace=True), torch.nn.GELU())
                self.tail = torch.nn.Conv2d(8, 12, 3, padding=1)

            def forward(self, x):
                features = self.head(x)
                a, b = (features + self.body(features)).chunk(2, dim=1)
                features = torch.cat([a * b.mean(dim=[2, 3], keepdim=True), b.clamp(0.0, 1.0)], dim=1)
                larger = torch.nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear")
                return larger + torch.nn.functional.pixel_shuffle(self.tail(features), 2)

        torch.jit.script(Network()).save(self.folder / "network.pt")
        self.run_program("export", "network.pt", "-o", "network.onnx", "--check", "--python", sys.executable)
        network = torch.nn.Sequential(torch.nn.Conv2d(3, 12, 3, padding=1), torch.nn.PixelShuffle(2), torch.nn.Softshrink())
        torch.jit.script(network).save(self.folder / "network.pt")
        done = self.run_program("export", "network.pt", "-o", "other.onnx", expect=1)
        self.assert_one_sentence(done.stderr, "softshrink")


if __name__ == "__main__":
    import unittest

    unittest.main()
