"""What `pip install --no-build-isolation .` puts into an environment: VapourSynth finds the plugin, the program its engine."""
import os
import pathlib
import shutil
import subprocess
import sys

from support import BUILD, SOURCE, ProgramTest

SCRIPT = """
import sys
import vapoursynth as vs
clip = vs.core.std.BlankClip(width=64, height=48, format=vs.YUV420P8, length=2)
restored = vs.core.reelgrad.Model(clip, sys.argv[1], device="cpu")
print(restored.width, restored.get_frame(1).height)
"""


class Wheel(ProgramTest):
    def install(self):
        """The files of the wheel, in a prefix of their own that holds VapourSynth and torch."""
        import torch
        import vapoursynth

        prefix = self.folder / "prefix"
        self.packages = prefix / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
        self.packages.mkdir(parents=True)
        (self.packages / "torch").symlink_to(pathlib.Path(torch.__file__).parent)
        shutil.copytree(pathlib.Path(vapoursynth.__file__).parent, self.packages / "vapoursynth",
                        ignore=shutil.ignore_patterns("plugins"))
        subprocess.run(["cmake", "--install", str(BUILD), "--component", "wheel", "--prefix", str(self.packages)], check=True,
                       capture_output=True)
        return prefix

    def test_it_works_where_it_is_installed(self):
        run = self.trained_run()
        prefix = self.install()
        plugin = self.packages / "vapoursynth" / "plugins" / "reelgrad"
        self.assertEqual(sorted(p.name for p in plugin.iterdir()), ["libreelgrad.so", "libreelgrad_vs.so", "manifest.vs"])
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self.folder)}
        done = subprocess.run([sys.executable, "-c", SCRIPT, str(run)], cwd=self.folder, capture_output=True, text=True,
                              env={**environment, "PYTHONPATH": str(self.packages)})
        self.assertEqual((done.returncode, done.stdout), (0, "128 96\n"), done.stderr)
        done = subprocess.run([str(prefix / "bin" / "reelgrad"), "inspect", str(run), "--json"], cwd=self.folder, capture_output=True,
                              text=True, env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        # The engine's own torch is the one beside it, not the one that it was built with.
        libraries = subprocess.run(["readelf", "-d", str(plugin / "libreelgrad.so")], check=True, capture_output=True, text=True)
        self.assertRegex(libraries.stdout, r"RPATH.*\[\$ORIGIN\]")

        # Where VapourSynth is elsewhere, a variable names the folder.
        done = subprocess.run([sys.executable, "-c", SCRIPT, str(run)], cwd=self.folder, capture_output=True, text=True,
                              env={**environment, "VAPOURSYNTH_EXTRA_PLUGIN_PATH": str(plugin.parent)})
        self.assertEqual((done.returncode, done.stdout), (0, "128 96\n"), done.stderr)

    def test_what_pip_is_told(self):
        import torch

        ask = ["-c", "import wheel_metadata; print(wheel_metadata.dynamic_metadata({}, {}))"]
        environment = {**os.environ, "PYTHONPATH": str(SOURCE / "cmake")}
        done = subprocess.run([sys.executable, *ask], capture_output=True, text=True, env=environment, check=True)
        told = eval(done.stdout)
        self.assertEqual(told["dependencies"], ["torch==" + torch.__version__.split("+")[0], "vapoursynth>=81"])
        self.assertIn(told["version"], self.run_program("--version").stdout)

        done = subprocess.run([sys.executable, "-S", *ask], capture_output=True, text=True, env=environment)  # no site-packages
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("install torch first", done.stderr)
