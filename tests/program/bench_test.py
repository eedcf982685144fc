"""`reelgrad bench models` and `bench gan` without a card: small pictures, but the same rows."""
import json
import sys
import unittest

from support import ProgramTest

KEYS = ["name", "ours", "peer", "peer_name", "ratio", "unit"]


class Bench(ProgramTest):
    def rows(self, *arguments):
        done = self.run_program("bench", "models", "--quick", "--device", "cpu", "--json", *arguments)
        return json.loads(done.stdout)["rows"], done.stderr

    def test_rows_of_one_and_of_several_frames(self):
        rows, said = self.rows("--arch", "compact", "--arch", "temporalspan", "--python", sys.executable)
        self.assertEqual([row["name"].split()[:2] for row in rows], [["train", "compact"], ["apply", "compact"],
                                                                     ["train", "temporalspan"], ["apply", "temporalspan"]])
        for row, module in zip(rows, ["spandrel", "spandrel", "the tests' module", "the tests' module"]):
            self.assertEqual(list(row), KEYS)
            self.assertEqual(row["peer_name"], f"PyTorch eager fp32, {module}")
            self.assertGreater(row["ours"], 0)
            self.assertAlmostEqual(row["ratio"], row["ours"] / row["peer"])
        self.assertEqual([row["unit"] for row in rows], ["it/s", "frames/s"] * 2)
        self.assertIn("the CPU: float32 and small pictures", said)

    def test_without_spandrel_ours_alone(self):
        python = self.write("python", "#!/bin/sh\nexit 1\n")
        python.chmod(0o755)
        rows, said = self.rows("--arch", "compact", "--python", python)
        self.assertEqual([row["peer"] for row in rows], [None, None])
        self.assertIn("pip install spandrel", said)

    def test_rows_of_adversarial_training(self):
        done = self.run_program("bench", "gan", "--arch", "compact", "--batch", "1", "--crop", "16", "--steps", "12", "--rounds",
                                "1", "--json", "--python", sys.executable, "--set", "model.features=8", "--set", "model.convs=1",
                                "--set", "data.pool_frames=16", "--set", "run.device=cpu")
        row, = json.loads(done.stdout)["rows"]  # no peak of the processor's memory
        self.assertEqual(row["name"], "train compact x4 unet_sn vgg19 batch 1 crop 16")
        self.assertEqual(row["peer_name"], "usual PyTorch loop, no loading")
        self.assertGreater(row["ours"], 0)
        self.assertAlmostEqual(row["ratio"], row["ours"] / row["peer"])

    def test_an_unknown_choice_of_convolutions_is_refused(self):
        done = self.run_program("bench", "models", "--quick", "--device", "cpu", "--arch", "compact",
                                env={"REELGRAD_CONV": "fast"}, expect=2)
        self.assert_one_sentence(done.stderr, 'REELGRAD_CONV: unknown "fast"', "own, own80, aten, cudnn")

    def test_an_unknown_architecture_is_refused(self):
        done = self.run_program("bench", "models", "--arch", "compat", expect=2)
        self.assert_one_sentence(done.stderr, "--arch compat", "compact", "tscunet")


if __name__ == "__main__":
    unittest.main()
