#include "reelgrad/base/files.h"
#include "reelgrad/clip/clip.h"
#include "reelgrad/clip/clip_test_util.h"

namespace reelgrad {
namespace {

using test::error_of;
using test::output;
using test::ScriptFolder;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(ScriptOpen, ReadsOutputsAndArguments) {
  const ScriptFolder folder;
  const auto path = folder.script("a.vpy",
                                  "assert isinstance(width, str)\n"
                                  "core.std.BlankClip(width=int(width), height=48, format=vs.YUV422P10, length=7, "
                                  "fpsnum=24000, fpsden=1001).set_output()\n"
                                  "core.std.BlankClip(width=32, height=33, format=vs.RGBS, length=3).set_output(5)\n");
  const Script script = Script::open(path, {.args = {{"width", "64"}}});
  EXPECT_TRUE(script.is_script());
  EXPECT_EQ(script.path(), path);
  EXPECT_EQ(script.outputs(), (std::vector<int>{0, 5}));
  EXPECT_FALSE(script.output(1).has_value());
  const Clip clip = script.output(0).value();
  EXPECT_EQ(clip.name(), "a.vpy, output 0");
  EXPECT_EQ(clip.info().format.name(), "YUV422P10");
  EXPECT_EQ(clip.info().width, 64);
  EXPECT_EQ(clip.info().height, 48);
  EXPECT_EQ(clip.info().frames, 7);
  EXPECT_EQ(clip.info().fps, (Rational{24000, 1001}));
  EXPECT_EQ(script.output(5)->info().format.name(), "RGBS");
}

TEST(ScriptOpen, WorksBesideItsFilesWhateverItsPath) {
  const ScriptFolder folder("é あ 🎬");
  folder.write("size.txt", "40");
  folder.script("ü.vpy",
                "with open('size.txt') as f: w = int(f.read())\ncore.std.BlankClip(width=w, height=16).set_output()\n");
  EXPECT_EQ(output(folder / "ü.vpy").info().width, 40);
  folder.script("bad.vpy", "raise ValueError('あ')\n");
  const Error error = error_of([&] { Script::open(folder / "bad.vpy"); });
  EXPECT_EQ(error.kind(), ErrorKind::usage);
  EXPECT_EQ(std::string(error.what()), (folder / "bad.vpy").string() + ":3: ValueError: あ");
}

TEST(ScriptOpen, AScriptThatRunsOutOfMemorySaysSo) {
  const ScriptFolder folder;
  const auto path = folder.script("s.vpy", "x = bytes(2**62)\n");
  const Error error = error_of([&] { Script::open(path); });
  EXPECT_EQ(error.kind(), ErrorKind::out_of_memory);
  EXPECT_EQ(error.what(), path.string() + ":3: MemoryError");
}

TEST(ScriptOpen, ErrorsNameFileLineAndMessage) {
  const ScriptFolder folder;
  const auto message = [&](const std::string& body) {
    const auto path = folder.script("s.vpy", body);
    const Error error = error_of([&] { Script::open(path); });
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_TRUE(std::string(error.what()).starts_with(path.string())) << error.what();
    return std::string(error.what()).substr(path.string().size());
  };
  EXPECT_EQ(message("\n\nx = 1 / 0\n"), ":5: ZeroDivisionError: division by zero");
  EXPECT_EQ(message("core.std.BlankClip(width=-1)\n"), ":3: vapoursynth.Error: BlankClip: invalid width");
  EXPECT_EQ(message("y = (\n"), ":3: SyntaxError: '(' was never closed");
  EXPECT_TRUE(contains(message("import sys\nsys.exit(7)\n"), "code 7"));
}

TEST(ScriptOpen, RefusesWhatIsMissingOrEmpty) {
  const ScriptFolder folder;
  const Error missing = error_of([&] { Script::open(folder / "no.vpy"); });
  EXPECT_EQ(missing.kind(), ErrorKind::usage);
  EXPECT_TRUE(contains(missing.what(), "no.vpy: no such file"));
  const Error named = error_of([&] { open_named_clip(folder / "no.vpy"); });
  EXPECT_EQ(named.kind(), ErrorKind::failed);
  EXPECT_STREQ(named.what(), missing.what());
  const Error empty = error_of([&] { Script::open(folder.script("e.vpy", "")); });
  EXPECT_TRUE(contains(empty.what(), "no video output")) << empty.what();
  const Error argument = error_of([&] { Script::open(folder.script("f.vpy", ""), {.args = {{"1x", "2"}}}); });
  EXPECT_TRUE(contains(argument.what(), "\"1x\"")) << argument.what();
}

TEST(ScriptOpen, RefusesVariableClipsNamingTheFirstFrameThatDiffers) {
  const ScriptFolder folder;
  folder.script("v.vpy",
                "a = core.std.BlankClip(width=640, height=480, format=vs.YUV420P8, length=3)\n"
                "b = core.std.BlankClip(width=320, height=240, format=vs.YUV420P10, length=3)\n"
                "core.std.BlankClip(a).set_output(0)\n"
                "core.std.Splice([a, b], mismatch=True).set_output(1)\n");
  const Error error = error_of([&] { Script::open(folder / "v.vpy"); });
  EXPECT_EQ(error.kind(), ErrorKind::usage);
  for (const char* part : {"v.vpy, output 1", "frame 3 is 320x240 YUV420P10", "640x480 YUV420P8"}) {
    EXPECT_TRUE(contains(error.what(), part)) << error.what();
  }
  folder.script("w.vpy", "core.std.BlankClip(format=vs.GRAY32).set_output()\n");
  const Error deep = error_of([&] { Script::open(folder / "w.vpy"); });
  EXPECT_TRUE(contains(deep.what(), "Gray32 is not supported")) << deep.what();
}

TEST(TrainingPair, ChecksBothOutputs) {
  const ScriptFolder folder;
  const auto script = [&](const std::string& name, const std::string& body) {
    return Script::open(folder.script(name,
                                      "t = core.std.BlankClip(width=64, height=48, length=4, format=vs.YUV420P8)\n"
                                      "t.set_output()\n" +
                                          body));
  };
  const ClipPair pair = training_pair(script("good.vpy", "t.resize.Bicubic(32, 24).set_output(1)\n"), 2);
  EXPECT_EQ(pair.scale, 2);
  EXPECT_EQ(pair.target.info().width, 64);
  EXPECT_EQ(pair.input.info().width, 32);

  const auto message = [&](const std::string& body, int scale) {
    const Script opened = script("bad.vpy", body);
    const Error error = error_of([&] { training_pair(opened, scale); });
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return std::string(error.what());
  };
  EXPECT_TRUE(contains(message("", 2), "no output 1 (the input)"));
  const std::string length = message("t.resize.Bicubic(32, 24).std.Trim(length=3).set_output(1)\n", 2);
  EXPECT_TRUE(contains(length, "output 0 (target) has 4 frames, output 1 (input) 3")) << length;
  EXPECT_TRUE(contains(length, "target.std.Trim(length=3)")) << length;
  const std::string scale = message("t.resize.Bicubic(32, 20).set_output(1)\n", 2);
  EXPECT_TRUE(contains(scale, "output 0 (target) is 64x48, output 1 (input) 32x20")) << scale;
  EXPECT_TRUE(contains(scale, "target.resize.Bicubic(32, 24).set_output(1)")) << scale;
}

TEST(InputClip, IsOutputOneOfATrainingScript) {
  const ScriptFolder folder;
  const std::string first = "core.std.BlankClip(width=64, height=48).set_output(0)\n";
  const Script training =
      Script::open(folder.script("t.vpy", first + "core.std.BlankClip(width=32, height=24).set_output(1)\n"));
  EXPECT_EQ(input_clip(training).info().width, 32);
  EXPECT_EQ(input_clip(Script::open(folder.script("p.vpy", first))).info().width, 64);
  const Script odd = Script::open(folder.script("o.vpy", "core.std.BlankClip().set_output(3)\n"));
  EXPECT_TRUE(contains(error_of([&] { input_clip(odd); }).what(), "no output 0; the script sets: 3"));
}

TEST(ClipFrame, SamplesAreVapourSynths) {
  const ScriptFolder folder;
  // Odd sizes, so that rows have padding; values that differ at every place.
  const std::string make =
      "def make(fmt, w, h):\n"
      "    c = core.std.BlankClip(width=w, height=h, format=fmt, length=3)\n"
      "    def fill(n, f):\n"
      "        g = f.copy()\n"
      "        for p in range(g.format.num_planes):\n"
      "            a = g[p]\n"
      "            for y in range(a.shape[0]):\n"
      "                for x in range(a.shape[1]):\n"
      "                    v = (x * 7 + y * 13 + p * 29 + n * 31) % 251\n"
      "                    a[y, x] = v / 256 if g.format.sample_type == vs.FLOAT else v\n"
      "        return g\n"
      "    return c.std.ModifyFrame(c, fill)\n"
      "clips = [make(vs.GRAY8, 31, 5), make(vs.YUV420P8, 34, 6), make(vs.YUV444P16, 33, 3), make(vs.RGBS, 101, 2),\n"
      "         make(vs.GRAY8, 1, 1)]\n";
  const auto script = folder.script("f.vpy", make + "for i, c in enumerate(clips): c.set_output(i)\n");
  const auto reference = folder.script("ref.py", make +
                                                     "import sys\n"
                                                     "with open(sys.argv[1], 'wb') as out:\n"
                                                     "    for c in clips:\n"
                                                     "        f = c.get_frame(2)\n"
                                                     "        for p in range(f.format.num_planes):\n"
                                                     "            out.write(memoryview(f[p]).tobytes())\n");
  test::python(reference, {(folder / "ref.bin").string()});
  const Script opened = Script::open(script);
  std::string ours;
  for (const int i : opened.outputs()) {
    const Frame frame = opened.output(i)->frame(2);
    EXPECT_EQ(frame.number(), 2);
    ours += test::packed(frame.view());
  }
  EXPECT_EQ(ours, test::read_bytes(folder / "ref.bin"));
}

TEST(ClipFrame, ReadsProperties) {
  const ScriptFolder folder;
  folder.script("p.vpy",
                "c = core.std.BlankClip(width=64, height=48, format=vs.YUV420P8)\n"
                "c.std.SetFrameProps(_Matrix=6, _Transfer=16, _Primaries=9, _Range=1, _ChromaLocation=1, "
                "_DurationNum=2002, _DurationDen=96000, _SARNum=8, _SARDen=9, _FieldBased=2)"
                ".set_output()\n"
                "c.std.SetFrameProps(_Range=0, _FieldBased=0).set_output(1)\n"
                "c.std.RemoveFrameProps().set_output(2)\n"
                "c.std.RemoveFrameProps().std.SetFrameProps(_ColorRange=0).set_output(3)\n");
  const Script script = Script::open(folder / "p.vpy");
  const Frame frame = script.output(0)->frame(0);
  EXPECT_EQ(frame.view().color, (ColorProps{6, 1, 1, 16, 9}));
  EXPECT_EQ(frame.duration(), (Rational{1001, 48000}));
  EXPECT_EQ(frame.sample_aspect(), (Rational{8, 9}));
  EXPECT_TRUE(frame.interlaced());
  EXPECT_EQ(script.output(1)->frame(0).view().color.range, 0);
  EXPECT_FALSE(script.output(1)->frame(0).interlaced());
  EXPECT_EQ(script.output(2)->frame(0).view().color, ColorProps{});
  EXPECT_EQ(script.output(2)->frame(0).duration(), Rational{});
  EXPECT_EQ(script.output(3)->frame(0).view().color.range, 1);  // the older property: 0 is full
}

TEST(ClipFrame, ErrorsCarryTheNumberThatWasAskedFor) {
  const ScriptFolder folder;
  // One filter whose text names no frame, one whose text names another.
  const auto raising = [&](const std::string& name, int frame, const std::string& text) {
    return output(folder.script(name,
                                "c = core.std.BlankClip(width=64, height=48, length=50)\n"
                                "def f(n):\n"
                                "    if n == " +
                                    std::to_string(frame) + ": raise RuntimeError('" + text +
                                    "')\n"
                                    "    return c\n"
                                    "c.std.FrameEval(f).set_output()\n"));
  };
  const Clip silent = raising("silent.vpy", 37, "broken");
  const Clip wrong = raising("wrong.vpy", 5, "frame 99 is broken");
  const std::string first = error_of([&] { silent.frame(37); }).what();
  EXPECT_TRUE(first.starts_with("silent.vpy, output 0: frame 37: ")) << first;
  EXPECT_TRUE(contains(first, "silent.vpy:5: RuntimeError: broken")) << first;
  const std::string second = error_of([&] { wrong.frame(5); }).what();
  EXPECT_TRUE(second.starts_with("wrong.vpy, output 0: frame 5: ")) << second;
  EXPECT_EQ(error_of([&] { wrong.frame(5); }).kind(), ErrorKind::failed);
  EXPECT_EQ(silent.frame(36).number(), 36);
  EXPECT_TRUE(contains(error_of([&] { silent.frame(50); }).what(), "frame 50 does not exist"));
}

TEST(ClipFrame, OutlivesScriptAndClip) {
  const ScriptFolder folder;
  Frame frame;
  {
    const Clip clip = output(folder.script("l.vpy",
                                           "core.std.BlankClip(width=64, height=48, format=vs.GRAY8, "
                                           "color=77).set_output()\n"));
    frame = clip.frame(0);
  }
  EXPECT_EQ(std::to_integer<int>(frame.view().planes[0].data[63]), 77);
}

TEST(ClipBicubic, IsVapourSynthsWithItsDefaults) {
  const ScriptFolder folder;
  const std::string noise =
      "def fill(n, f):\n"
      "    g = f.copy()\n"
      "    for y in range(24):\n"
      "        for x in range(32): g[0][y, x] = (x * x * 7 + y * 31) % 256\n"
      "    return g\n"
      "c = core.std.BlankClip(width=32, height=24, format=vs.YUV420P8, length=1)\n"
      "c = c.std.ModifyFrame(c, fill)\n";
  const Clip clip = output(folder.script("b.vpy", noise + "c.set_output()\n")).bicubic(64, 48);
  test::python(
      folder.script("ref.py", noise + "import sys\nf = c.resize.Bicubic(64, 48).get_frame(0)\n"
                                      "open(sys.argv[1], 'wb').write(b''.join(memoryview(f[p]).tobytes() for p "
                                      "in range(3)))\n"),
      {(folder / "ref.bin").string()});
  EXPECT_EQ(test::packed(clip.frame(0).view()), test::read_bytes(folder / "ref.bin"));
}

TEST(OwnedPicture, PlanesFollowEachOther) {
  OwnedPicture picture({ColorFamily::yuv, SampleType::integer, 10, 1, 1}, 6, 4, {.matrix = 1});
  EXPECT_EQ(picture.size_bytes(), 2u * (24 + 6 + 6));
  const MutableFrameView view = picture.mutable_view();
  view.planes[2].data[view.planes[2].stride_bytes * 1 + 5] = std::byte{9};
  EXPECT_EQ(picture.view().planes[0].data[2 * (24 + 6 + 6) - 1], std::byte{9});
  EXPECT_EQ(picture.view().color.matrix, 1);
}

}  // namespace
}  // namespace reelgrad
