"""Runs from start to end: the run folder, exact resume, interruption."""
import json
import os
import signal
import subprocess
import time
import unittest

from safetensors import safe_open

from support import REELGRAD, SOURCE, ProgramTest


def tensors(path):
    with safe_open(path, framework="pt") as file:
        return {key: file.get_tensor(key) for key in file.keys()}


def metrics(run):
    """metrics.jsonl without what depends on the clock."""
    clocked = {"time", "it_per_s", "data_wait"}
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k not in clocked} for line in lines]


class Runs(ProgramTest):
    def train(self, name, *args, expect=0):
        self.run_program("train", "small.toml", "--set", f"run.dir={self.folder / name}", *args, expect=expect)
        return self.folder / name

    def assert_same_run(self, a, b, step):
        self.assertEqual(metrics(a), metrics(b))
        for name in ("model.safetensors", "training.safetensors"):
            x, y = (tensors(run / "checkpoints" / f"step-{step:06d}" / name) for run in (a, b))
            self.assertEqual(list(x), list(y))
            for key in x:
                self.assertTrue(x[key].equal(y[key]), f"{name}: {key} differs")

    def setUp(self):
        super().setUp()
        self.write_pair()
        self.write_config()

    def test_run_folder(self):
        run = self.train("run")
        self.assertLessEqual({"config.toml", "log.txt", "metrics.jsonl", "checkpoints", "preview"}, set(os.listdir(run)))
        self.assertEqual([m["step"] for m in metrics(run) if "loss" in m], [2, 4, 6, 8])
        self.assertEqual([m["step"] for m in metrics(run) if "validation" in m], [4, 8])
        self.assertTrue((run / "checkpoints" / "step-000008" / "manifest.json").exists())
        self.assertFalse([p for p in self.tree(run) if ".tmp" in p])
        # The run's own config trains the same run again.
        again = self.folder / "again"
        self.run_program("train", run / "config.toml", "--set", f"run.dir={again}")
        self.assert_same_run(run, again, 8)

    def test_a_resumed_run_is_bit_equal(self):
        unbroken = self.train("unbroken")
        for stop in (1, 3, 5):
            run = self.train(f"stopped-{stop}", "--stop-at", str(stop))
            self.assertTrue((run / "checkpoints" / f"step-{stop:06d}").is_dir())
            self.train(f"stopped-{stop}", "--resume")
            self.assert_same_run(unbroken, run, 8)

    def test_retention_keeps_the_last_and_the_best(self):
        run = self.train("run", "--set", "checkpoint.every=1", "--set", "checkpoint.keep_last=2")
        kept = sorted(os.listdir(run / "checkpoints"))
        self.assertIn("step-000007", kept)
        self.assertIn("step-000008", kept)
        self.assertLessEqual(len([k for k in kept if k.startswith("step-")]), 3)

    def test_interruption_saves_and_exits_130(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            run = self.folder / f"run-{number.name}"
            child = subprocess.Popen([str(REELGRAD), "train", "small.toml", "--set", f"run.dir={run}", "--set",
                                      "run.steps=1000000"], cwd=self.folder, stderr=subprocess.PIPE, text=True)
            while not (run / "checkpoints").is_dir() or not any((run / "checkpoints").iterdir()):
                self.assertIsNone(child.poll())
                time.sleep(0.05)
            child.send_signal(number)
            _, err = child.communicate(timeout=60)
            self.assertEqual(child.returncode, 130, err)
            self.assertIn("--resume", err)
            newest = sorted(p for p in (run / "checkpoints").iterdir() if p.name.startswith("step-"))[-1]
            step = int(newest.name.removeprefix("step-"))
            self.run_program("train", "small.toml", "--set", f"run.dir={run}", "--set", f"run.steps={step + 2}", "--resume")

    def test_progress_without_a_terminal_is_plain_lines(self):
        done = self.run_program("train", "small.toml", "--set", f"run.dir={self.folder / 'plain'}")
        self.assertNotIn("\r", done.stderr)
        self.assertNotIn("\x1b", done.stderr)


    def test_a_terminal_has_one_live_line(self):
        primary, terminal = os.openpty()
        child = subprocess.Popen([str(REELGRAD), "train", "small.toml", "--set", f"run.dir={self.folder / 'live'}"],
                                 cwd=self.folder, stderr=terminal, env={**os.environ, "TERM": "xterm", "NO_COLOR": "1"})
        os.close(terminal)
        shown = b""
        while True:
            try:
                part = os.read(primary, 4096)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            shown += part
        os.close(primary)
        self.assertEqual(child.wait(timeout=60), 0)
        self.assertIn(b"\r\x1b[K", shown)
        self.assertRegex(shown, rb"step \d+/8")

    def test_arguments_of_the_command_line_win(self):
        self.write_pair(extra="assert strength == 'command line', strength")
        config = self.write_config(script="x")
        config.write_text(config.read_text().replace('script = "x"', 'script = [{ path = "pair.vpy", args = { strength = "file" } }]'))
        self.run_program("train", config, "--arg", "strength=command line")


class Example(ProgramTest):
    def test_the_example_runs_from_any_folder(self):
        self.run_program("train", SOURCE / "examples" / "sr2x.toml", "--set", "run.steps=2", "--set", "run.device=cpu", "--set",
                         "model.features=8", "--set", "model.convs=1", "--set", "data.batch=2", "--set",
                         "validation.every=100000", "--set", "data.pool_frames=16", "--set", 'validation.frames="131:"')
        self.assertTrue((self.folder / "runs").is_dir())


if __name__ == "__main__":
    unittest.main()
