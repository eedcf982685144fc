"""Networks of the user's own, as a user has them: a TorchScript file written by PyTorch, and a module built against the installed package."""
import json
import os
import pathlib
import shutil
import subprocess
import sys

from support import BUILD, SOURCE, ProgramTest

NET = """
import sys
import torch
from torch import nn
torch.manual_seed(1)
net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.PReLU(8), nn.Conv2d(8, 12, 3, padding=1), nn.PixelShuffle(2))
torch.jit.script(net).save(sys.argv[1])
"""


class OwnNetworks(ProgramTest):
    def setUp(self):
        super().setUp()
        self.write_pair()
        self.config = self.write_config()

    def use(self, *lines):
        """The configuration with these lines as its [model]."""
        text = self.config.read_text().replace("features = 8\nconvs = 1", "\n".join(lines))
        self.config.write_text(text)

    def train(self, name, *args, expect=0, program=None):
        arguments = ["train", "small.toml", "--set", f"run.dir={self.folder / name}", *args]
        self.run_program(*arguments, expect=expect) if program is None else program(*arguments)
        return self.folder / name

    def weights(self, run, name="model.safetensors", step=8):
        from safetensors.torch import load_file

        return load_file(run / "checkpoints" / f"step-{step:06d}" / name)

    def assert_same_weights(self, a, b):
        for name in ("model.safetensors", "training.safetensors"):
            x, y = self.weights(a, name), self.weights(b, name)
            self.assertEqual(list(x), list(y))
            for key in x:
                self.assertTrue(x[key].equal(y[key]), f"{name}: {key} differs")


class TorchScript(OwnNetworks):
    def setUp(self):
        super().setUp()
        subprocess.run([sys.executable, "-W", "ignore", "-c", NET, self.folder / "net.pt"], check=True)
        self.use('arch = "torchscript"', 'file = "net.pt"', "scale = 2")

    def test_it_trains_and_its_run_stands_by_itself(self):
        run = self.train("run")
        self.assertEqual(sorted(self.weights(run)), ["0.bias", "0.weight", "1.weight", "2.bias", "2.weight"])
        (self.folder / "net.pt").unlink()
        self.run_program("apply", run, "pair.vpy", "-o", "out.mkv", "--device", "cpu")
        scores = json.loads(self.run_program("validate", run, "pair.vpy", "--json", "--device", "cpu").stdout)
        self.assertGreater(scores["ours"]["psnr_rgb"], 5)
        seen = json.loads(self.run_program("inspect", run, "--json").stdout)
        self.assertEqual((seen["arch"], seen["receptive_radius_px"], seen["size_multiple"]), ("torchscript", 2, 1))

    def test_what_pytorch_loads_is_what_was_trained(self):
        import torch

        run = self.train("run")
        network = torch.jit.load(run / "network.pt")
        before = {key: value.clone() for key, value in network.state_dict().items()}
        network.load_state_dict(self.weights(run))
        self.assertFalse(all(value.equal(before[key]) for key, value in network.state_dict().items()))

    def test_a_resumed_run_is_bit_equal(self):
        unbroken = self.train("unbroken")
        run = self.train("run", "--stop-at", "3")
        self.train("run", "--resume")
        self.assert_same_weights(unbroken, run)

    def test_a_model_alone_needs_its_network(self):
        run = self.train("run")
        model = self.folder / "alone.safetensors"
        shutil.copy(run / "checkpoints" / "step-000008" / "model.safetensors", model)
        done = self.run_program("apply", model, "pair.vpy", "-o", "out.mkv", "--device", "cpu", expect=1)
        self.assert_one_sentence(done.stderr, "alone.safetensors", "alone.pt", "network.pt")
        shutil.copy(run / "network.pt", self.folder / "alone.pt")
        self.run_program("apply", model, "pair.vpy", "-o", "out.mkv", "--device", "cpu")

    def test_another_network_cannot_go_on_with_the_run(self):
        self.train("run", "--stop-at", "3")
        subprocess.run([sys.executable, "-W", "ignore", "-c", NET.replace("8", "4"), self.folder / "net.pt"], check=True)
        done = self.run_program("train", "small.toml", "--set", f"run.dir={self.folder / 'run'}", "--resume", expect=2)
        self.assert_one_sentence(done.stderr, "net.pt", "network.pt", "--fresh")

    def test_files_that_are_no_network(self):
        for content, said in ((b"no network", "is not a TorchScript file"), (None, "does not exist")):
            if content is None:
                (self.folder / "net.pt").unlink()
            else:
                (self.folder / "net.pt").write_bytes(content)
            done = self.run_program("train", "small.toml", expect=2)
            self.assert_one_sentence(done.stderr, "model.file", "net.pt", said)
            self.assertFalse((self.folder / "run").exists())


class Module(OwnNetworks):
    def cmake(self, *args):
        # The one beside Python, where there is one: the system's may be older than what the project needs.
        beside = pathlib.Path(sys.executable).with_name("cmake")
        done = subprocess.run([str(beside) if beside.exists() else "cmake", *map(str, args)], capture_output=True, text=True,
                              timeout=400)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def installed(self, *args):
        """The installed program; the compiler's own words are in what it is asked to build."""
        done = subprocess.run([str(self.folder / "install" / "bin" / "reelgrad"), *map(str, args)], cwd=self.folder, text=True,
                              capture_output=True, timeout=120, env={**os.environ})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_example_builds_against_the_package_and_trains(self):
        self.cmake("--install", BUILD, "--prefix", self.folder / "install")
        self.cmake("-S", SOURCE / "examples" / "module", "-B", self.folder / "build",
                   f"-DCMAKE_PREFIX_PATH={self.folder / 'install'}")
        self.cmake("--build", self.folder / "build")
        self.use('arch = "module"', 'module = "build/libmy_network.so"', "scale = 2", "args = { features = 8, blocks = 2 }")

        unbroken = self.train("unbroken", program=self.installed)
        self.assertIn("blocks.1.second.weight", self.weights(unbroken))
        run = self.train("run", "--stop-at", "3")
        self.train("run", "--resume")
        self.assert_same_weights(unbroken, run)

        self.use_args_that_fail()
        shutil.rmtree(self.folder / "build")
        self.run_program("apply", run, "pair.vpy", "-o", "out.mkv", "--device", "cpu")
        self.installed("apply", run, "pair.vpy", "-o", "installed.mkv", "--device", "cpu")

    def use_args_that_fail(self):
        done = self.run_program("train", "small.toml", "--set", f"run.dir={self.folder / 'other'}", "--set",
                                "model.args={ blocks = 0 }", expect=2)
        self.assert_one_sentence(done.stderr, "libmy_network.so", 'blocks = "0"', "from 1 to 256")
