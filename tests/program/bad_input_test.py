"""Bad input: one clear sentence with place and remedy, the right exit code, nothing half-written."""
import json
import os
import shutil
import subprocess
import unittest
import zipfile

from support import REELGRAD, ProgramTest, example_clip


class BadConfig(ProgramTest):
    def refused(self, *fragments, settings=(), expect=2):
        before = self.tree(self.folder)
        done = self.run_program("train", "small.toml", *settings, expect=expect)
        self.assert_one_sentence(done.stderr, *fragments)
        self.assertEqual(self.tree(self.folder), before, "something was written")

    def setUp(self):
        super().setUp()
        self.write_pair()
        self.config = self.write_config()

    def change(self, old, new):
        text = self.config.read_text()
        self.assertIn(old, text)
        self.config.write_text(text.replace(old, new))

    def test_unknown_key_suggests_the_nearest(self):
        self.change("batch = 2", "bach = 2")
        self.refused("small.toml:10: data.bach: unknown key", 'did you mean "batch"?')

    def test_wrong_type(self):
        self.change("batch = 2", 'batch = "many"')
        self.refused("small.toml:10: data.batch", "many")

    def test_out_of_range(self):
        self.change("batch = 2", "batch = 0")
        self.refused("small.toml:10: data.batch", "0")

    def test_unknown_architecture(self):
        self.change("[model]", '[model]\narch = "compat"')
        self.refused("model.arch", "compat", "compact")

    def test_bad_setting(self):
        self.refused("optimizer.lrr", 'did you mean "lr"?', settings=["--set", "optimizer.lrr=1"])

    def test_missing_script(self):
        self.change("pair.vpy", "gone.vpy")
        self.refused("small.toml:9: data.script", "gone.vpy")

    def test_missing_config(self):
        done = self.run_program("train", "gone.toml", expect=2)
        self.assert_one_sentence(done.stderr, "gone.toml")

    def test_not_toml(self):
        self.config.write_text("[run\n")
        self.refused("small.toml:1")

    def test_script_without_output_1(self):
        script = self.folder / "pair.vpy"
        script.write_text(script.read_text().replace("small.set_output(1)", ""))
        self.refused("pair.vpy", "output 1", "set_output(1)")

    def test_differing_lengths(self):
        self.write_pair(extra="small = small[:5]")
        self.refused("pair.vpy", "12", "5")

    def test_wrong_scale(self):
        self.write_pair(extra="small = core.resize.Bicubic(clip, 100, 48)")
        self.refused("pair.vpy", "128x96", "100x48", "2")

    def test_crop_larger_than_the_frame(self):
        self.change("crop_px = 16", "crop_px = 65")
        self.refused("crop_px", "65", "64x48")

    def test_script_that_raises(self):
        self.write("pair.vpy", "import vapoursynth as vs\nraise RuntimeError('the tape is torn')\n")
        done = self.run_program("train", "small.toml", expect=2)
        self.assert_one_sentence(done.stderr, "pair.vpy:2: ", "the tape is torn")

    def test_no_card(self):
        if _has_card():
            self.skipTest("there is a card here")
        self.refused("cuda", "doctor", settings=["--set", "run.device=cuda"], expect=3)

    def test_more_samples_a_step_than_any_machine_holds(self):
        self.refused("optimizer.accumulate", settings=["--set", "data.batch=65536", "--set", "optimizer.accumulate=1024"])

    def test_the_log_says_what_ended_the_run(self):
        self.write_pair(extra="""
def torn(n, clip=clip):
    if 0 < n < 9:
        raise RuntimeError("bad tape")
    return clip
clip = core.std.FrameEval(clip, torn)
""")
        self.run_program("train", "small.toml", expect=1)
        self.assertIn("bad tape", (self.folder / "run" / "log.txt").read_text())

    def test_run_folder_that_cannot_be_made(self):
        self.write("occupied", "a file")
        self.refused("occupied", settings=["--set", f"run.dir={self.folder}/occupied/run"], expect=1)

    def test_used_run_folder(self):
        self.run_program("train", "small.toml")
        self.refused("--resume", "--fresh")

    def test_a_folder_with_other_files_is_no_run_folder(self):
        (self.folder / "mine").mkdir()
        self.write("mine/notes.txt", "keep me")
        self.refused("mine", settings=["--set", f"run.dir={self.folder}/mine"])

    def test_nothing_is_set_aside_for_a_run_that_cannot_start(self):
        if _has_card():
            self.skipTest("fp16 can be trained here")
        self.run_program("train", "small.toml")
        self.refused("precision.amp", "fp16", settings=["--fresh", "--set", "precision.amp=fp16"])

    def test_a_trailing_slash_changes_nothing(self):
        for mode in ([], ["--fresh"]):
            self.run_program("train", "small.toml", "--set", f"run.dir={self.folder}/run/", *mode)
        self.assertTrue((self.folder / "run.old-1").is_dir())

    def test_resume_without_a_run(self):
        self.refused("--resume", settings=["--resume"])

    def test_fresh_sets_the_old_run_aside(self):
        self.run_program("train", "small.toml")
        self.run_program("train", "small.toml", "--fresh")
        self.assertTrue((self.folder / "run.old-1" / "checkpoints").is_dir())


def _has_card():
    done = subprocess.run([str(REELGRAD), "devices", "--json"], capture_output=True, text=True)
    return '"will_run": true' in done.stdout


class BadFiles(ProgramTest):
    def test_missing_model_and_clip(self):
        done = self.run_program("apply", "gone.safetensors", example_clip(), "-o", "a.mkv", expect=1)
        self.assert_one_sentence(done.stderr, "gone.safetensors")
        done = self.run_program("inspect", "gone.mkv", expect=1)
        self.assert_one_sentence(done.stderr, "gone.mkv")
        self.assertEqual(self.tree(self.folder), [])

    def test_unreadable_video(self):
        self.write("torn.mkv", "this is no video")
        done = self.run_program("inspect", "torn.mkv", expect=1)
        self.assert_one_sentence(done.stderr, "torn.mkv")

    def test_model_that_is_no_safetensors_file(self):
        self.write("torn.safetensors", "this is no model")
        done = self.run_program("apply", "torn.safetensors", example_clip(), "-o", "a.mkv", expect=1)
        self.assert_one_sentence(done.stderr, "torn.safetensors")
        self.assertEqual(self.tree(self.folder), ["torn.safetensors"])

    def test_pytorch_file(self):
        self.write("model.pth", "PK")
        done = self.run_program("apply", "model.pth", example_clip(), "-o", "a.mkv", expect=1)
        self.assert_one_sentence(done.stderr, "model.pth", "neither a .safetensors file nor one of torch.save")
        done = self.run_program("inspect", "model.pth", expect=1)
        self.assert_one_sentence(done.stderr, "model.pth", "torch.save")

    def test_malicious_file(self):
        import pickle

        class Touch:
            def __reduce__(self):
                return os.system, (f"touch {marker}",)

        marker = self.folder / "marker"
        with zipfile.ZipFile(self.folder / "model.mkv", "w") as archive:
            archive.writestr("model/data.pkl", pickle.dumps({"params": Touch()}, protocol=2))
        for command in (["inspect"], ["apply", example_clip(), "-o", "a.mkv"], ["export", "-o", "b.pth"]):
            done = self.run_program(command[0], "model.mkv", *command[1:], expect=1)
            self.assert_one_sentence(done.stderr, "model.mkv", "system", "nothing of it was run")
        self.assertEqual(self.tree(self.folder), ["model.mkv"])

    def test_export(self):
        self.run_program("export", "gone.pth", "-o", "a.pth", expect=1)
        run = self.trained_run()
        done = self.run_program("export", run, "-o", "a.bin", expect=2)
        self.assert_one_sentence(done.stderr, "a.bin", ".safetensors or .pth")
        model = shutil.copy(run / "checkpoints" / "step-000008" / "model.safetensors", self.folder)
        done = self.run_program("export", model, "-o", "model.safetensors", expect=2)
        self.assert_one_sentence(done.stderr, "is the model that is read")
        done = self.run_program("export", run, "-o", "missing/a.pth", expect=1)
        self.assert_one_sentence(done.stderr, "missing/a.pth")

    def test_output_over_the_input(self):
        run = self.trained_run()
        clip = self.folder / "clip.mp4"
        shutil.copy(example_clip(), clip)
        size = clip.stat().st_size
        done = self.run_program("apply", run, clip, "-o", "./clip.mp4", "--frames", "0:2", expect=2)
        self.assert_one_sentence(done.stderr, "clip.mp4")
        self.assertEqual(clip.stat().st_size, size)

    def test_lost_output_is_an_error(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([str(REELGRAD), "devices"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 1, done.stderr)

    def test_output_name_that_means_no_format(self):
        run = self.trained_run()
        done = self.run_program("apply", run, "pair.vpy", "-o", "a.xyz", expect=2)
        self.assert_one_sentence(done.stderr, "a.xyz", ".mkv")

    def test_a_frame_that_fails_names_itself_and_leaves_no_file(self):
        run = self.trained_run()
        self.write_pair("torn.vpy", extra="""
def torn(n, clip=small):
    if n == 7:
        raise RuntimeError("bad tape")
    return clip
small = core.std.FrameEval(small, torn)
""")
        done = self.run_program("apply", run, "torn.vpy", "-o", "a.mkv", expect=1)
        self.assert_one_sentence(done.stderr, "frame 7", "bad tape")
        self.assertFalse([p for p in self.tree(self.folder) if p.endswith(".mkv")])

    def test_damaged_checkpoint_offers_the_older_one(self):
        run = self.trained_run()
        newest = run / "checkpoints" / "step-000008" / "model.safetensors"
        newest.write_bytes(newest.read_bytes()[:-1])
        done = self.run_program("apply", run / "checkpoints" / "step-000008", "pair.vpy", "-o", "a.mkv", expect=1)
        self.assert_one_sentence(done.stderr, "step-000008", "step-000004")
        described = json.loads(self.run_program("inspect", run, "--json").stdout)
        damages = {c["step"]: c["damage"] for c in described["checkpoints"]}
        self.assertEqual(damages[4], "")
        self.assertIn("model.safetensors", damages[8])
        done = self.run_program("train", "small.toml", "--resume")
        self.assertIn("step-000008", done.stderr)
        self.assertIn("step-000004", done.stderr)

    def test_full_disk(self):
        self.write_pair()
        config = self.write_config()
        disk = self.folder / "disk"
        disk.mkdir()
        inner = f"mount -t tmpfs -o size=192k tmpfs {disk} && exec {REELGRAD} train {config} --set run.dir={disk}/run"
        done = subprocess.run(["unshare", "-rm", "sh", "-c", inner], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assert_one_sentence(done.stderr, str(disk))
        self.assertIn("free", done.stderr)


class WithoutTorch(ProgramTest):
    """Help, doctor and config errors work where torch is missing, and open none of it."""

    ENV = {"REELGRAD_TORCH": "/nonexistent", "LD_DEBUG": "libs"}

    def libraries(self, *args, expect):
        done = self.run_program(*args, expect=expect, env=self.ENV)
        self.assertNotIn("libtorch", done.stderr)
        self.assertNotIn("libreelgrad.so", done.stderr)
        return done

    def test_help(self):
        self.assertIn("train", self.libraries("--help", expect=0).stdout)
        self.assertIn("--resume", self.libraries("train", "--help", expect=0).stdout)

    def test_config_error(self):
        self.write_pair()
        config = self.write_config(extra="[modell]\n")
        done = self.libraries("train", config, expect=2)
        self.assertIn('did you mean "model"?', done.stderr)

    def test_doctor_names_the_missing_torch(self):
        done = self.run_program("doctor", "--json", expect=3, env={"REELGRAD_TORCH": "/nonexistent"})
        self.assertIn("TORCH_MISSING", done.stdout)
        self.libraries("doctor", expect=3)

    def test_train_says_where_torch_was_sought(self):
        self.write_pair()
        done = self.run_program("train", self.write_config(), expect=3, env={"REELGRAD_TORCH": "/nonexistent"})
        self.assert_one_sentence(done.stderr, "/nonexistent")

    def test_usage_errors(self):
        for args in (["nothing"], ["train"], ["apply", "a", "b"], ["train", "a.toml", "--resume", "--fresh"], ["report", "x"]):
            self.run_program(*args, expect=2)


if __name__ == "__main__":
    unittest.main()
