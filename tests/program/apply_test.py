"""apply, validate, preview, inspect and init on real clips, checked with ffprobe, PIL and VapourSynth."""
import json
import random
import shutil
import signal
import subprocess
import time
import unittest

from PIL import Image

from support import REELGRAD, ProgramTest, example_clip, ffprobe


class Apply(ProgramTest):
    def setUp(self):
        super().setUp()
        self.run_folder = self.trained_run()

    def stream(self, path):
        return ffprobe(path, ["-select_streams", "v", "-count_frames", "-show_entries",
                              "stream=width,height,pix_fmt,nb_read_frames,r_frame_rate,color_space,color_range"])["streams"][0]

    def test_matroska_and_mp4(self):
        for name in ("out.mkv", "out.mp4"):
            done = self.run_program("apply", self.run_folder, "pair.vpy", "-o", name)
            stream = self.stream(self.folder / name)
            self.assertEqual((stream["width"], stream["height"], stream["nb_read_frames"]), (128, 96, "12"))
            self.assertEqual(stream["pix_fmt"], "yuv420p")
            self.assertIn("8", done.stderr)

    def test_frames_of_a_video_with_its_audio(self):
        self.run_program("apply", self.run_folder, example_clip(), "-o", "out.mkv", "--frames", "10:14", "--tile", "320")
        stream = self.stream(self.folder / "out.mkv")
        self.assertEqual((stream["width"], stream["height"], stream["nb_read_frames"]), (2560, 1440, "4"))
        self.assertEqual(stream["r_frame_rate"], "25/1")
        audio = ffprobe(self.folder / "out.mkv", ["-select_streams", "a", "-show_entries", "stream=codec_name"])["streams"]
        self.assertEqual(len(audio), 1)
        # Both begin together: the audio was not taken from the key frame before.
        starts = [float(ffprobe(self.folder / "out.mkv", ["-select_streams", kind, "-show_entries", "packet=pts_time"])
                        ["packets"][0]["pts_time"]) for kind in "va"]
        self.assertLess(abs(starts[0] - starts[1]), 0.05)

    def test_deeper_sources_become_10_bits(self):
        for depth, expected in (("YUV420P10", "yuv420p10le"), ("YUV444P16", "yuv444p10le"), ("YUV444PS", "yuv444p10le")):
            self.write_pair("deep.vpy", extra=f"small = core.resize.Bicubic(small, format=vs.{depth})\n"
                                              f"clip = core.resize.Bicubic(clip, format=vs.{depth})")
            self.run_program("apply", self.run_folder, "deep.vpy", "-o", f"{depth}.mkv")
            self.assertEqual(self.stream(self.folder / f"{depth}.mkv")["pix_fmt"], expected)

    def test_y4m_on_stdout(self):
        done = subprocess.run([str(REELGRAD), "apply", str(self.run_folder), "pair.vpy", "-o", "-"], cwd=self.folder,
                              capture_output=True, check=True)
        header, _, rest = done.stdout.partition(b"\n")
        self.assertTrue(header.startswith(b"YUV4MPEG2 W128 H96 F25:1"), header)
        self.assertEqual(len(rest), 12 * (len(b"FRAME\n") + 128 * 96 * 3 // 2))

    def test_tiles_equal_whole_frames(self):
        frames = []
        for tile in ("0", "24"):
            done = subprocess.run([str(REELGRAD), "apply", str(self.run_folder), "pair.vpy", "-o", "-", "--tile", tile],
                                  cwd=self.folder, capture_output=True, check=True)
            frames.append(done.stdout)
        self.assertEqual(len(frames[0]), len(frames[1]))
        self.assertLessEqual(max(abs(a - b) for a, b in zip(*frames)), 1)

    def test_an_interrupted_run_leaves_nothing(self):
        child = subprocess.Popen([str(REELGRAD), "apply", str(self.run_folder), str(example_clip()), "-o", "out.mkv"],
                                 cwd=self.folder, stderr=subprocess.PIPE, text=True)
        try:
            child.wait(timeout=4)
        except subprocess.TimeoutExpired:
            pass
        child.terminate()
        _, err = child.communicate(timeout=60)
        self.assertEqual(child.returncode, 130, err)
        self.assertFalse([p for p in self.tree(self.folder) if p.endswith(".mkv")])

    def test_an_interrupt_stops_within_a_frame(self):
        self.write("one.vpy", """
import vapoursynth as vs
vs.core.std.BlankClip(format=vs.YUV420P8, width=1920, height=1080, length=1).std.SetFrameProps(_Matrix=1).set_output()
""")
        child = subprocess.Popen([str(REELGRAD), "apply", str(self.run_folder), "one.vpy", "-o", "out.mkv", "--tile", "16"],
                                 cwd=self.folder, stderr=subprocess.PIPE, text=True)
        for line in child.stderr:
            if "1 frames" in line:
                break
        time.sleep(0.1)  # its 8,000 tiles take much longer
        child.terminate()
        _, err = child.communicate(timeout=60)
        self.assertEqual(child.returncode, 130, err)
        self.assertFalse([p for p in self.tree(self.folder) if p.endswith(".mkv")])

    def test_validate(self):
        done = self.run_program("validate", self.run_folder, "pair.vpy", "--frames", "0.5:", "--json")
        result = json.loads(done.stdout)
        for who in ("ours", "bicubic"):
            self.assertEqual(set(result[who]), {"psnr_rgb", "psnr_y", "ssim_rgb", "ssim_y"})
        self.assertEqual(result["clips"][0]["frames"], 6)
        self.assertIn("over bicubic", self.run_program("validate", self.run_folder, "pair.vpy").stdout)

    def test_validate_folders_of_images(self):
        for number, (width, height) in enumerate([(64, 48), (40, 32)]):
            picture = Image.effect_noise((width, height), 40).convert("RGB")
            for folder, size in (("LR", picture.size), ("HR", (2 * width, 2 * height))):
                (self.folder / folder).mkdir(exist_ok=True)
                picture.resize(size).save(self.folder / folder / f"{number}.png")
        done = self.run_program("validate", self.run_folder, "HR", "--input", "LR", "--json")
        clips = json.loads(done.stdout)["clips"]
        self.assertEqual([(clip["name"], clip["frames"]) for clip in clips], [("0.png", 1), ("1.png", 1)])
        self.assertGreater(min(clip["bicubic"]["psnr_rgb"] for clip in clips), 20)
        self.assertIn("--input", self.run_program("validate", self.run_folder, "HR", expect=2).stderr)

    def test_preview(self):
        self.run_program("preview", self.run_folder, "pair.vpy", "--frame", "3", "-o", "a.png")
        self.assertEqual(Image.open(self.folder / "a.png").size, (4 * 128, 96))

    def test_inspect(self):
        kinds = {"pair.vpy": "script", str(example_clip()): "video", str(self.run_folder): "run",
                 str(self.run_folder / "checkpoints" / "step-000008"): "checkpoint",
                 str(self.run_folder / "checkpoints" / "step-000008" / "model.safetensors"): "model"}
        for path, kind in kinds.items():
            described = json.loads(self.run_program("inspect", path, "--json").stdout)
            self.assertEqual(described["kind"], kind)
            if kind in ("script", "video"):
                self.assertIn(described["frames"]["path"], ("cpu", "gpu"))
                self.assertTrue(described["frames"]["why"])
            self.run_program("inspect", path)

    def test_inspect_of_what_is_no_model(self):
        import safetensors.torch
        import torch

        weights = safetensors.torch.load_file(self.run_folder / "checkpoints" / "step-000008" / "model.safetensors")
        last = max(weights, key=lambda name: int(name.split(".")[1]))
        gone = weights.pop(last)
        torch.save(weights, self.folder / "torn.pth")
        done = self.run_program("inspect", "torn.pth", "--json", expect=1)
        described = json.loads(done.stdout)
        self.assertIsNone(described["arch"])
        self.assertEqual(len(described["nearest"]), 3)
        nearest = described["nearest"][0]
        self.assertEqual((nearest["arch"], nearest["key"], nearest["expected"], nearest["found"]),
                         ("compact", last, list(gone.shape), None))
        self.assert_one_sentence(self.run_program("inspect", "torn.pth", expect=1).stderr, "torn.pth", "compact", last)

        discriminator = {"model.0.weight": torch.zeros(8, 3, 4, 4), "model.0.bias": torch.zeros(8),
                         "model.2.weight": torch.zeros(16, 8, 4, 4), "model.2.bias": torch.zeros(16),
                         "model.4.weight": torch.zeros(1, 16, 4, 4), "model.4.bias": torch.zeros(1)}
        torch.save(discriminator, self.folder / "judge.pth")
        described = json.loads(self.run_program("inspect", "judge.pth", "--json").stdout)
        self.assertEqual((described["kind"], described["net"], described["layers"], described["norm"]),
                         ("discriminator", "patchgan", 1, "none"))
        self.assertIn("[discriminator]", described["use"])
        done = self.run_program("apply", "judge.pth", "pair.vpy", "-o", "out.y4m", expect=1)
        self.assert_one_sentence(done.stderr, "discriminator", "patchgan")

    def test_inspect_of_an_architecture(self):
        set_all = ("--set", "depths=[2, 2]", "--set", "heads=6,6", "--set", "scale=3")
        described = json.loads(self.run_program("inspect", "--arch", "swinir", *set_all, "--json").stdout)
        self.assertEqual(described["scale"], 3)
        self.assertEqual({o["name"]: o["value"] for o in described["options"]}["depths"], "2,2")
        done = self.run_program("inspect", "--arch", "swinir", "--set", "depth=[2, 2]", expect=2)
        self.assert_one_sentence(done.stderr, 'did you mean "depths"?')

    def restored(self, model):
        self.run_program("apply", model, "pair.vpy", "-o", "out.y4m", "--frames", "0:2", "--precision", "fp32")
        return (self.folder / "out.y4m").read_bytes()

    def test_export_and_back(self):
        import safetensors.torch
        import torch

        expected = self.restored(self.run_folder)
        self.run_program("export", self.run_folder, "-o", "a.pth")
        stored = torch.load(self.folder / "a.pth", weights_only=True)
        self.assertIn('"arch":"compact"', stored["reelgrad"])
        self.assertEqual(self.restored("a.pth"), expected)
        # By its content, whatever its name.
        shutil.copy(self.folder / "a.pth", self.folder / "b.CKPT")
        self.run_program("export", "b.CKPT", "-o", "c.safetensors")
        again = safetensors.torch.load_file(self.folder / "c.safetensors")
        self.assertEqual(again.keys(), stored["params"].keys())
        for name, tensor in again.items():
            self.assertTrue(torch.equal(tensor, stored["params"][name]), name)
        self.assertEqual(self.restored("c.safetensors"), expected)
        self.assertEqual(json.loads(self.run_program("inspect", "b.CKPT", "--json").stdout)["arch"], "compact")

        self.run_program("export", "c.safetensors", "-o", "half.pth", "--half")
        half = torch.load(self.folder / "half.pth", weights_only=True)["params"]
        for name, tensor in half.items():
            self.assertTrue(torch.equal(tensor, again[name].half()), name)
        self.restored("half.pth")

    def test_training_starts_from_any_file_and_metadata_is_kept(self):
        import safetensors.torch
        import torch
        from safetensors import safe_open

        run = self.run_folder / "checkpoints" / "step-000008" / "model.safetensors"
        weights = safetensors.torch.load_file(run)
        torch.save({"params": {n: 2 * t for n, t in weights.items()}, "params_ema": {"module." + n: t for n, t in weights.items()},
                    "iter": 7}, self.folder / "trainer.pth")
        config = self.write_config("next.toml", run="next").read_text().replace("[model]", '[model]\npretrained = "trainer.pth"')
        (self.folder / "next.toml").write_text(config)
        done = self.run_program("train", "next.toml", "--set", "optimizer.lr=1e-12")
        self.assertIn('the weights are those of "params_ema"; beside it: params, iter', done.stderr)
        after = safetensors.torch.load_file(self.folder / "next" / "checkpoints" / "step-000008" / "model.safetensors")
        for name, tensor in weights.items():
            self.assertLess((after[name] - tensor).abs().max().item(), 1e-6, name)

        theirs = json.dumps({"scale": 2, "network": "compact"})
        safetensors.torch.save_file(weights, self.folder / "theirs.safetensors", metadata={"metadata": theirs})
        self.run_program("export", "theirs.safetensors", "-o", "kept.safetensors")
        with safe_open(self.folder / "kept.safetensors", "pt") as file:
            self.assertEqual(file.metadata()["metadata"], theirs)
        self.run_program("export", "theirs.safetensors", "-o", "kept.pth")
        self.assertEqual(torch.load(self.folder / "kept.pth", weights_only=True)["metadata"], theirs)

    def test_a_torchscript_file_alone(self):
        import torch

        network = torch.nn.Sequential(torch.nn.Conv2d(3, 12, 3, padding=1), torch.nn.PixelShuffle(2))
        torch.jit.script(network).save(self.folder / "network.pth")
        self.assertTrue(self.restored("network.pth").startswith(b"YUV4MPEG2 W128 H96"))
        described = json.loads(self.run_program("inspect", "network.pth", "--json").stdout)
        self.assertEqual((described["arch"], described["scale"], described["parameters"]), ("torchscript", 2, 336))


class ApplyVideo(ProgramTest):
    """A small film with sound, subtitles, chapters and an attachment, whose frames last unequally long."""

    def setUp(self):
        super().setUp()
        self.run_folder = self.trained_run()
        subtitles = self.write("s.srt", """
            1
            00:00:00,200 --> 00:00:01,000
            Hello
            """)
        chapters = self.write("chapters.txt", """
            ;FFMETADATA1
            [CHAPTER]
            TIMEBASE=1/1000
            START=0
            END=1000
            title=One
            """)
        self.film = self.folder / "film.mkv"
        subprocess.run(["ffmpeg", "-v", "error", "-i", str(example_clip()), "-i", str(subtitles), "-i", str(chapters), "-attach",
                        str(chapters), "-metadata:s:3", "mimetype=text/plain", "-map", "0:v", "-map", "0:a", "-map", "1",
                        "-vf", "crop=96:64,setpts=(N+floor(N/4))/25/TB", "-frames:v", "40", "-t", "3", "-vsync", "passthrough",
                        "-c:a", "copy", "-c:s", "srt", "-metadata:s:a:0", "language=jpn", "-metadata", "title=The film", str(self.film)], check=True)

    def apply(self, *args, expect=0):
        return self.run_program("apply", self.run_folder, self.film, "--device", "cpu", *args, expect=expect)

    def pictures(self, name):
        """Every frame's time and hash."""
        done = subprocess.run(["ffmpeg", "-v", "error", "-copyts", "-i", str(self.folder / name), "-map", "0:v", "-vsync",
                               "passthrough", "-enc_time_base", "1/1000", "-f", "framemd5", "-"], check=True, capture_output=True, text=True)
        lines = [line.split(",") for line in done.stdout.splitlines() if not line.startswith("#")]
        return [(line[2].strip(), line[5].strip()) for line in lines]

    def kinds(self, name):
        streams = ffprobe(self.folder / name, ["-show_entries", "stream=codec_type,codec_name"])["streams"]
        return [(stream["codec_type"], stream.get("codec_name", "")) for stream in streams]

    def test_all_streams_and_times_are_kept(self):
        done = self.apply("-o", "out.mkv")
        self.assertNotIn("left out", done.stderr)
        self.assertEqual([kind for kind, _ in self.kinds("out.mkv")], ["video", "audio", "subtitle", "attachment"])
        self.assertEqual([time for time, _ in self.pictures("out.mkv")], [time for time, _ in self.pictures("film.mkv")])
        about = ffprobe(self.folder / "out.mkv", ["-show_chapters", "-show_entries", "stream_tags=language:format_tags=title"])
        self.assertEqual(about["chapters"][0]["tags"]["title"], "One")
        self.assertEqual(about["format"]["tags"]["title"], "The film")
        self.assertEqual(about["streams"][1]["tags"]["language"], "jpn")

        done = self.apply("-o", "out.mp4", "--no-audio")
        self.assertIn("left out, as .mp4 does not hold it: an attachment", done.stderr)
        self.assertEqual(self.kinds("out.mp4")[:2], [("video", "h264"), ("subtitle", "mov_text")])

    def test_encoder_options(self):
        done = self.apply("-o", "out.mkv", "--codec", "libx265", "--crf", "30", "--pix-fmt", "yuv420p10le", "--ffmpeg",
                          "-preset ultrafast -x265-params log-level=error", "--frames", "0:3")
        self.assertIn("writing yuv420p10le as libx265, crf 30 (YUV420P8 is written at 10 bits)", done.stderr)
        self.assertEqual(self.kinds("out.mkv")[0], ("video", "hevc"))
        for options, code, words in ((["--pix-fmt", "yuv9000p"], 2, "libx264 takes yuv420p"),
                                     (["--ffmpeg", "-preset lento"], 1, "lento"),
                                     (["--ffmpeg", "/nowhere/ffmpeg"], 1, "/nowhere/ffmpeg"),
                                     (["--overlap", "wide"], 2, "auto, exact"),
                                     (["--fresh"], 2, "--segments"),
                                     (["--segments", "0"], 2, "--segments")):
            done = self.apply("-o", "refused.mkv", *options, expect=code)
            self.assert_one_sentence(done.stderr, words)
        self.assertFalse([path for path in self.tree(self.folder) if "refused" in path])

    def test_killed_again_and_again_segments_go_on(self):
        command = [str(REELGRAD), "apply", str(self.run_folder), str(self.film), "-o", "out.mkv", "--device", "cpu", "--segments", "4"]
        self.apply("-o", "whole.mkv", "--segments", "4")
        work = self.folder / ".out.mkv.segments"
        chance = random.Random(8)
        for signal_name in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
            there = len(list(work.glob("0*.nut"))) if work.exists() else 0
            wanted = there + chance.randint(1, 2)
            child = subprocess.Popen(command, cwd=self.folder, stderr=subprocess.PIPE, text=True)
            while child.poll() is None and (not work.exists() or len(list(work.glob("0*.nut"))) < wanted):
                time.sleep(0.001)
            time.sleep(chance.random() * 0.02)
            child.send_signal(signal_name)
            _, err = child.communicate(timeout=60)
            if child.returncode == 0:  # it was faster
                break
            self.assertEqual(child.returncode, 130 if signal_name == signal.SIGTERM else -signal.SIGKILL, err)
            self.assertFalse((self.folder / "out.mkv").exists())
        if child.returncode != 0:
            done = self.apply("-o", "out.mkv", "--segments", "4", "--crf", "30", expect=2)
            self.assert_one_sentence(done.stderr, "quality was", "--fresh")
            done = self.apply("-o", "out.mkv", "--segments", "4")
            self.assertIn("going on after them", done.stderr)
        self.assertEqual(self.pictures("out.mkv"), self.pictures("whole.mkv"))
        self.assertEqual(len(self.pictures("out.mkv")), 40)
        self.assertEqual(self.kinds("out.mkv"), self.kinds("whole.mkv"))
        self.assertFalse(work.exists())

    def test_segments_whose_manifest_is_damaged_are_refused(self):
        work = self.folder / ".out.mkv.segments"
        work.mkdir()
        for text in ("{", "[]", '{"version": 1, "made_of": {"codec": 7}, "segments": []}',
                     '{"version": 1, "made_of": {}, "segments": [{"frames": "four"}]}'):
            (work / "manifest.json").write_text(text)
            done = self.apply("-o", "out.mkv", "--segments", "4", expect=2)
            self.assert_one_sentence(done.stderr, "its manifest cannot be read", "--fresh")
        self.apply("-o", "out.mkv", "--segments", "4", "--fresh")
        self.assertFalse(work.exists())

    def test_a_second_ctrl_c_leaves_nothing_either(self):
        slow = self.write("slow.vpy", """
            import vapoursynth as vs
            core = vs.core
            clip = core.std.BlankClip(width=640, height=480, format=vs.YUV420P8, length=10000)
            clip.set_output()
            """)
        child = subprocess.Popen([str(REELGRAD), "apply", str(self.run_folder), str(slow), "-o", "out.mkv", "--device", "cpu"],
                                 cwd=self.folder, stderr=subprocess.PIPE, text=True)
        while child.poll() is None and not list(self.folder.glob(".out*.mkv")):
            time.sleep(0.01)
        child.send_signal(signal.SIGINT)
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=60)
        self.assertEqual(child.returncode, 130)
        self.assertFalse(list(self.folder.glob("*out*")) + list(self.folder.glob(".out*")))


class Init(ProgramTest):
    def test_every_task_runs_as_it_is(self):
        clip = self.folder / "clip.mp4"
        subprocess.run(["ffmpeg", "-v", "error", "-i", str(example_clip()), "-frames:v", "24", "-vf", "crop=320:240", "-an",
                        str(clip)], check=True)
        for task in ("sr", "sr-gan", "denoise", "deblock"):
            self.run_program("init", "--task", task, "--clip", clip, task)
            self.run_program("train", f"{task}/train.toml", "--set", "run.steps=2", "--set", "run.device=cpu", "--set",
                             "model.features=8", "--set", "model.convs=1", "--set", "data.batch=2", "--set",
                             "data.crop_px=32", "--set", "data.pool_frames=16",
                             *(["--set", "discriminator.features=8"] if task == "sr-gan" else []))
            self.assertTrue((self.folder / "runs" / task / "checkpoints" / "step-000002").is_dir())
            done = self.run_program("init", "--task", task, task, expect=2)
            self.assertIn("already there", done.stderr)


if __name__ == "__main__":
    unittest.main()
