"""What really goes wrong for people: whole commands on the cases of the project's list (the numbers are the list's)."""
import fractions
import os
import shutil
import subprocess

from support import CONFIG, ProgramTest, example_clip, ffprobe

STRANGE = "é あ 🎬"


def write_images(folder, sizes, scale):
    """Pairs of PNG files, cut from a real clip: folder/LR/0x2.png (as DIV2K names them) and folder/HR/0.png."""
    (folder / "LR").mkdir(parents=True)
    (folder / "HR").mkdir()
    for i, (width, height) in enumerate(sizes):
        target = folder / "HR" / f"{i}.png"
        cut = f"crop={width * scale}:{height * scale}:{40 * i}:{20 * i}"
        for file, filters in ((target, cut), (folder / "LR" / f"{i}x{scale}.png", f"{cut},scale={width}:{height}:flags=bicubic")):
            subprocess.run(["ffmpeg", "-v", "error", "-nostdin", "-ss", str(i / 4), "-i", str(example_clip()), "-vf", filters,
                            "-frames:v", "1", str(file)], check=True)


def images_config(folder, run):
    return CONFIG.format(script="", run=run).replace('script = ""', f'pairs = {{ input = "{folder}/LR/", target = "{folder}/HR/" }}')


class StrangePaths(ProgramTest):
    """E12: script, clip, weights, checkpoints, index, log and images in a folder with accents, kana, a space and an emoji."""

    def setUp(self):
        super().setUp()
        self.folder = self.folder / STRANGE
        self.folder.mkdir()
        self.env = {"XDG_CACHE_HOME": str(self.folder / "cache")}
        self.clip = self.folder / "clip é.mp4"
        subprocess.run(["ffmpeg", "-v", "error", "-nostdin", "-i", str(example_clip()), "-vf", "scale=64:48", "-frames:v", "6",
                        str(self.clip)], check=True)

    def run_program(self, *args, **options):
        return super().run_program(*args, env=self.env, **options)

    def test_every_command_works_there(self):
        self.write_pair("päir.vpy")
        self.run_program("train", self.write_config("réglage.toml", script="päir.vpy", run="läuft"))
        run = self.folder / "läuft"
        self.assertIn("step-000008", "\n".join(self.tree(run)))
        self.assertIn("päir.vpy, output 0: frame ", (run / "log.txt").read_text())
        self.assertTrue((run / "preview" / "step-000008.png").is_file())
        self.run_program("train", "réglage.toml", "--resume", "--set", "run.steps=10")
        weights = shutil.copy(run / "checkpoints" / "step-000010" / "model.safetensors", self.folder / "poids 重み.safetensors")
        self.run_program("train", "réglage.toml", "--set", f"run.dir={self.folder}/zweiter", "--set",
                         f"model.pretrained={weights}")
        self.run_program("apply", weights, self.clip, "-o", self.folder / "aus 出.mkv")
        self.assertEqual(ffprobe(self.folder / "aus 出.mkv", ["-count_frames", "-show_entries", "stream=nb_read_frames"])
                         ["streams"][0]["nb_read_frames"], "6")
        self.assertEqual(len(list((self.folder / "cache" / "reelgrad" / "index").iterdir())), 1)
        self.run_program("validate", run, self.folder / "päir.vpy")
        self.run_program("preview", run, self.clip, "--frame", 2, "-o", self.folder / "bild é.png")
        self.assertTrue((self.folder / "bild é.png").is_file())
        for file in (run, weights, self.clip, self.folder / "päir.vpy"):
            self.run_program("inspect", file)

    def test_images_too(self):
        write_images(self.folder / "bilder 絵", [(40, 30), (31, 47)], 2)
        (self.folder / "images.toml").write_text(images_config("bilder 絵", self.folder / "run")
                                                 .replace('frames = "0.75:"', 'frames = "1:"'))
        self.run_program("train", "images.toml")

    def test_errors_print_names_intact(self):
        for args, code in ((["train", "gäbe.toml"], 2), (["apply", "gäbe.safetensors", self.clip, "-o", "a.mkv"], 1),
                           (["inspect", "gäbe.mkv"], 1)):
            done = self.run_program(*args, expect=code)
            self.assert_one_sentence(done.stderr, "gäbe.")
        self.write("kaputt あ.mkv", "no video")
        self.assert_one_sentence(self.run_program("inspect", "kaputt あ.mkv", expect=1).stderr, "kaputt あ.mkv")
        self.write("törn.vpy", "raise ValueError('あ')\n")
        done = self.run_program("train", self.write_config(script="törn.vpy"), expect=2)
        self.assert_one_sentence(done.stderr, f"{self.folder}/törn.vpy:1: ", "ValueError: あ")
        self.write("mödel.safetensors", "text")
        done = self.run_program("apply", "mödel.safetensors", self.clip, "-o", "a.mkv", expect=1)
        self.assert_one_sentence(done.stderr, "mödel.safetensors")


class Durations(ProgramTest):
    """E10: what a restored clip lasts is what its source lasted, exactly."""

    def written(self, durations, output, rate="24, 1"):
        run = self.trained_run()
        self.write("vfr.vpy", f"""
import vapoursynth as vs
core = vs.core
clip = core.std.BlankClip(format=vs.YUV420P8, width=64, height=48, length={len(durations)}).std.SetFrameProps(_Matrix=6)
clip = clip.std.AssumeFPS(None, {rate})
durations = {durations}
core.std.Splice([clip[i].std.SetFrameProps(_DurationNum=num, _DurationDen=den) for i, (num, den) in enumerate(durations)]
                ).set_output()
""")
        self.run_program("apply", run, "vfr.vpy", "-o", output)
        found = ffprobe(self.folder / output, ["-show_entries", "stream=time_base,duration_ts:packet=pts"])
        stream = found["streams"][0]
        base = fractions.Fraction(stream["time_base"])
        return sorted(packet["pts"] * base for packet in found["packets"]), stream["duration_ts"] * base

    def test_variable_durations_are_kept_exactly(self):
        durations = [(1, 24), (1, 24), (1001, 24000), (1, 30), (1, 24), (1, 12)]
        starts, end = self.written(durations, "vfr.mp4")
        expected, now = [], fractions.Fraction(0)
        for num, den in durations:
            expected.append(now)
            now += fractions.Fraction(num, den)
        self.assertEqual(starts, expected)
        self.assertEqual(now, fractions.Fraction(6801, 24000))
        self.assertEqual(end, now)

    def test_unreduced_ntsc_durations_are_kept_exactly(self):
        starts, end = self.written([(2002, 48000)] * 30, "ntsc.mp4", rate="24000, 1001")
        self.assertEqual(starts, [fractions.Fraction(1001 * i, 24000) for i in range(30)])
        self.assertEqual(end, fractions.Fraction(1001 * 30, 24000))


class VariableClips(ProgramTest):
    """E8: a video whose size changes is refused with the frame and both formats, and never ends early."""

    def test_a_spliced_video_is_refused(self):
        parts = []
        for size in ("640x480", "320x240"):
            part = self.folder / f"{size}.ts"
            subprocess.run(["ffmpeg", "-v", "error", "-nostdin", "-f", "lavfi", "-i", f"testsrc=s={size}:r=25:d=1", "-c:v",
                            "mpeg2video", "-pix_fmt", "yuv420p", str(part)], check=True)
            parts.append(part.read_bytes())
        (self.folder / "spliced.ts").write_bytes(b"".join(parts))
        env = {"XDG_CACHE_HOME": str(self.folder / "cache")}
        done = self.run_program("inspect", "spliced.ts", expect=1, env=env)
        self.assert_one_sentence(done.stderr, "spliced.ts", "is 320x240 YUV420P8", "640x480 YUV420P8")
        run = self.trained_run()
        done = self.run_program("apply", run, "spliced.ts", "-o", "out.mkv", expect=1, env=env)
        self.assert_one_sentence(done.stderr, "is 320x240 YUV420P8")
        self.assertFalse((self.folder / "out.mkv").exists())


class ImageFolders(ProgramTest):
    """Training from two folders of images, odd sizes among them."""

    def setUp(self):
        super().setUp()
        write_images(self.folder / "set", [(40, 30), (31, 47), (64, 17), (50, 50)], 2)

    def config(self, old="", new=""):
        """The smallest of configurations, in which `old` becomes `new`."""
        text = images_config("set", self.folder / "run")
        self.assertIn(old, text)
        return self.write("images.toml", text.replace(old, new) if old else text)

    def refused(self, *fragments):
        done = self.run_program("train", "images.toml", expect=2)
        self.assert_one_sentence(done.stderr, *fragments)
        self.assertFalse((self.folder / "run").exists())

    def test_trains_and_validates(self):
        self.config()
        self.run_program("train", "images.toml")
        metrics = (self.folder / "run" / "metrics.jsonl").read_text()
        self.assertIn("psnr_rgb", metrics)
        self.assertTrue((self.folder / "run" / "preview" / "step-000008.png").is_file())

    def test_validation_has_folders_of_its_own(self):
        write_images(self.folder / "val", [(33, 35), (48, 20)], 2)
        self.config('frames = "0.75:"', 'pairs = { input = "val/LR", target = "val/HR" }')
        self.run_program("train", "images.toml")
        self.assertIn("psnr_rgb", (self.folder / "run" / "metrics.jsonl").read_text())

    def test_a_resumed_run_is_bit_equal(self):
        self.config()
        self.run_program("train", "images.toml")
        self.run_program("train", "images.toml", "--stop-at", 4, "--set", f"run.dir={self.folder}/other")
        self.run_program("train", "images.toml", "--resume", "--set", f"run.dir={self.folder}/other")
        whole, resumed = (sorted((self.folder / run / "checkpoints").rglob("model.safetensors"))[-1].read_bytes()
                          for run in ("run", "other"))
        self.assertEqual(whole, resumed)

    def test_missing_partners(self):
        for i in (0, 2):
            os.remove(self.folder / "set" / "LR" / f"{i}x2.png")
        self.config()
        self.refused("set/HR: 2 of 4 images have no partner in", "set/LR: 0.png, 2.png")

    def test_wrong_scale(self):
        self.config("[model]", "[model]\nscale = 4")
        self.refused("set/HR/0.png: the target is 80x60", "model.scale = 4")

    def test_crop_larger_than_an_image(self):
        self.config("crop_px = 16", "crop_px = 20")
        self.refused("set/LR/2x2.png is 64x17", "data.crop_px = 20", "8 to 17")

    def test_windows_are_refused(self):
        self.config("batch = 2", "batch = 2\nwindow = 3")
        self.refused("images.toml:9: data.pairs", "single pictures", "data.window is 3")

    def test_a_folder_that_is_not_there(self):
        shutil.rmtree(self.folder / "set" / "LR")
        self.config()
        self.refused("images.toml:9: data.pairs.input", "set/LR", "does not exist")
