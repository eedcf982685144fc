"""Every code block of the user documentation runs: sh blocks in order, in one folder a page; python blocks with `clip`, MODEL
and PLUGIN defined; toml blocks are parts of a config, cpp blocks of an example, which is built. `text` blocks show what is not run."""
import os
import pathlib
import re
import subprocess
import sys
import tomllib

from support import BUILD, SOURCE, ProgramTest, example_clip

PYTHON_PREFIX = """
import os
import vapoursynth as vs
PLUGIN, MODEL = os.environ["PLUGIN"], os.environ["MODEL"]
clip = vs.core.bs.VideoSource(os.environ["CLIP"], cachemode=0)
clip = clip.resize.Bicubic(64, 48)
"""


class Docs(ProgramTest):
    def code_blocks(self, page):
        return re.findall(r"^```(\w*)\n(.*?)^```", (SOURCE / page).read_text(), re.M | re.S)

    def run_page(self, page):
        model = self.trained_run()
        work = self.folder / "page"
        work.mkdir()
        env = {**os.environ, "CLIP": str(example_clip()), "MODEL": str(model), "PLUGIN": str(BUILD / "lib" / "libreelgrad_vs.so"),
               "PATH": f"{BUILD}/bin:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
        for kind, code in self.code_blocks(page):
            with self.subTest(page=page, code=code):
                if kind == "sh":
                    done = subprocess.run(["bash", "-euo", "pipefail", "-c", code], cwd=work, env=env, capture_output=True,
                                          text=True, timeout=280)
                elif kind == "python":
                    done = subprocess.run([sys.executable, "-c", PYTHON_PREFIX + code], cwd=work, env=env, capture_output=True,
                                          text=True, timeout=120)
                elif kind == "toml":
                    tomllib.loads(code)
                    continue
                elif kind == "cpp":
                    self.assertTrue(any(code in example.read_text() for example in (SOURCE / "examples").rglob("*.cpp")))
                    continue
                else:
                    self.assertEqual(kind, "text", "a code block that nothing runs")
                    continue
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_readme(self):
        self.run_page("README.md")

    def test_readme_zh_has_the_same_code(self):
        """Apart from its comments."""
        def code_of(page):
            return [(kind, re.sub(r"\s*#.*", "", code)) for kind, code in self.code_blocks(page)]

        self.assertEqual(code_of("README.zh-CN.md"), code_of("README.md"))

    def test_training(self):
        self.run_page("docs/training.md")

    def test_losses(self):
        self.run_page("docs/losses.md")

    def test_adversarial(self):
        self.run_page("docs/adversarial.md")

    def test_restoring(self):
        self.run_page("docs/restoring.md")

    def test_networks(self):
        self.run_page("docs/networks.md")

    def test_doctor(self):
        self.run_page("docs/doctor.md")

    def test_config_reference_is_the_programs_own(self):
        page = (SOURCE / "docs" / "config.md").read_text()
        self.assertEqual(self.run_program("config-reference").stdout, page, "reelgrad config-reference > docs/config.md")
