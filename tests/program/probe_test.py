"""`reelgrad probe`, which the doctor runs for what may crash or hang: one line of JSON, and nobody is told of it."""
import importlib.util
import json
import unittest

from support import BUILD, ProgramTest

CARD = "GPU-01234567-89ab-cdef-0000-000000000000"  # of the fake driver


class Probe(ProgramTest):
    FAKE = {"LD_LIBRARY_PATH": str(BUILD / "tests" / "fake_driver" / "whole")}

    def ask(self, *probe, **environment):
        done = self.run_program("probe", *probe, env={**self.FAKE, **environment})
        self.assertEqual(len(done.stdout.splitlines()), 1)
        return json.loads(done.stdout)

    def test_driver(self):
        told = self.ask("driver")
        self.assertEqual(told["driver"]["version"], "580.65.06")
        self.assertEqual([card["uuid"] for card in told["devices"]], [CARD])

    def test_trial(self):
        told = self.ask("trial", CARD)
        self.assertEqual(told["trial"]["driver"], "ok", told)
        self.assertEqual(told["under_load"]["uuid"], CARD)

    def test_a_torch_that_is_not_there_is_no_failed_trial(self):
        told = self.ask("engine-trial", CARD, REELGRAD_TORCH="/nonexistent")
        self.assertEqual(told["trial"]["engine"], "not_run")
        told = self.ask("torch", "/nonexistent")
        self.assertEqual(told["outcome"], "failed")

    def test_help_does_not_list_it(self):
        self.assertNotIn("probe", self.run_program("--help").stdout)
        self.assert_one_sentence(self.run_program("probe", "nonsense", expect=2).stderr, "nonsense")


class ProbeWithTorch(ProgramTest):
    def test_torch(self):
        torch = importlib.util.find_spec("torch").submodule_search_locations[0]
        told = json.loads(self.run_program("probe", "torch", torch).stdout)
        self.assertEqual((told["outcome"], told["cuda_mapped"]), ("ok", True))

    def test_engine_trial_names_a_card_that_is_not_there(self):
        told = json.loads(self.run_program("probe", "engine-trial", CARD).stdout)
        self.assertEqual(told["trial"]["engine"], "failed")
        self.assertIn(CARD, told["trial"]["error"])


if __name__ == "__main__":
    unittest.main()
