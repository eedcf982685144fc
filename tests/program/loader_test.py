"""A program of a user's: examples/loader_example.cpp over libreelgrad.so."""
import re
import subprocess

from support import BUILD, ProgramTest

EXAMPLE = BUILD / "bin" / "loader_example"


class LoaderExample(ProgramTest):
    def run_example(self, *args, expect=0):
        done = subprocess.run([str(EXAMPLE), *map(str, args)], cwd=self.folder, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done

    def test_the_loss_falls(self):
        self.write_pair()
        losses = [float(value) for value in re.findall(r"loss ([0-9.]+)", self.run_example("pair.vpy").stdout)]
        self.assertEqual(len(losses), 5)
        self.assertLess(losses[-1], 0.8 * losses[0])

    def test_script_variables_and_errors(self):
        self.write_pair(extra="clip = clip[:int(frames)]; small = small[:int(frames)]")
        self.assertIn("5 frames", self.run_example("pair.vpy", "frames=5").stdout)
        done = self.run_example("pair.vpy", "frames=many", expect=1)
        self.assertIn("invalid literal", done.stderr)
        self.assertIn("gone.vpy", self.run_example("gone.vpy", expect=1).stderr)
