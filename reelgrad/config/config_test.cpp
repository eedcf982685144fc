// Reading: what is taken, and what is said of the rest.
#include "reelgrad/config/config.h"

#include "reelgrad/base/files.h"
#include "reelgrad/config/architectures.h"
#include "reelgrad/config/config_testing.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class ConfigReading : public test::ConfigFile {};

TEST_F(ConfigReading, TheSmallestHasEveryDefault) {
  const Config config = parse(minimal_);
  EXPECT_EQ(config.run.name, "train");
  EXPECT_EQ(config.run.dir, fs::current_path() / "runs" / "train");
  EXPECT_EQ(config.run.steps, 20'000);
  ASSERT_EQ(config.data.script.size(), 1u);
  EXPECT_EQ(config.data.script[0].path, folder_ / "a.vpy");
  EXPECT_EQ(config.data.script[0].end, -1);
  EXPECT_EQ(config.data.scene_cuts, "auto");
  EXPECT_TRUE(config.data.skip_duplicates);
  EXPECT_DOUBLE_EQ(config.optimizer.lr, 2e-4);
  EXPECT_EQ(config.model.options.at("features"), "64");
  EXPECT_EQ(config.model.options.at("convs"), "16");
  EXPECT_EQ(config.model.options.at("activation"), "prelu");
  EXPECT_THAT(config.validation.script, IsEmpty());
}

TEST_F(ConfigReading, ReadsEveryKindOfValue) {
  const Config config = parse(R"(
[run]
name = "test"
dir = "out/x"
steps = 1_000
seed = 9223372036854775807
device = "cuda:1"
deterministic = true
[data]
script = ["a.vpy", { path = "sub é/c.vpy", weight = 2.5, start = 3, end = 90, args = { src = "x y.mkv", n = 3, on = true } }]
window = 3
matrix_in = "601"
chromaloc_in = "top_left"
[model]
scale = 3
features = 24
activation = "relu"
pretrained = "w.safetensors"
[optimizer]
lr = 1
[schedule]
name = "multistep"
milestones = [100, 200]
[validation]
frames = "0.8:"
)");
  EXPECT_EQ(config.run.dir, fs::current_path() / "out/x");
  EXPECT_EQ(config.run.seed, 9223372036854775807u);
  EXPECT_TRUE(config.run.deterministic);
  ASSERT_EQ(config.data.script.size(), 2u);
  const ScriptConfig& second = config.data.script[1];
  EXPECT_EQ(second.path, folder_ / "sub é/c.vpy");
  EXPECT_EQ(second.weight, 2.5);
  EXPECT_EQ(second.start, 3);
  EXPECT_EQ(second.end, 90);
  EXPECT_EQ(second.args, (std::map<std::string, std::string>{{"src", "x y.mkv"}, {"n", "3"}, {"on", "true"}}));
  EXPECT_EQ(config.data.overrides.matrix_in, "601");
  EXPECT_EQ(config.data.overrides.chromaloc_in, "top_left");
  EXPECT_EQ(config.model.options.at("features"), "24");
  EXPECT_EQ(config.model.pretrained, folder_ / "w.safetensors");
  EXPECT_EQ(config.optimizer.lr, 1);
  EXPECT_THAT(config.schedule.milestones, ElementsAre(100, 200));
}

TEST_F(ConfigReading, UnknownKeysAndSectionsNameTheNearest) {
  EXPECT_EQ(error_after_data("[optimizer]\nlrr = 1"),
            "train.toml:4: optimizer.lrr: unknown key (did you mean \"lr\"?)");
  EXPECT_EQ(error_after_data("[optimiser]\nlr = 1"),
            "train.toml:3: optimiser: unknown section (did you mean \"optimizer\"?)");
  EXPECT_EQ(error_after_data("[ema]\nfoobar = 1"),
            "train.toml:4: ema.foobar: unknown key (known: decay, warmup, every)");
  EXPECT_EQ(error_of("steps = 3\n" + minimal_),
            "train.toml:1: steps: unknown key outside a section (known: run, data, model, loss, optimizer, schedule, "
            "discriminator, ema, precision, memory, validation, checkpoint)");
  EXPECT_EQ(error_after_data("[model]\nfeatres = 3"),
            "train.toml:4: model.featres: unknown key (did you mean \"features\"?)");
  EXPECT_THAT(error_after_data("[memroy]\noffload = false"), HasSubstr("train.toml:3: memroy: unknown section"));
  EXPECT_EQ(error_of("[data]\nscript = { path = \"a.vpy\", wieght = 2 }"),
            "train.toml:2: data.script.wieght: unknown key (did you mean \"weight\"?)");
}

TEST_F(ConfigReading, WrongTypesSayWhatIsAllowed) {
  EXPECT_EQ(error_after_data("batch = \"many\""),
            "train.toml:3: data.batch: \"many\" is a string, allowed: an integer from 1 to 65536");
  EXPECT_EQ(error_after_data("batch = 2.5"),
            "train.toml:3: data.batch: 2.5 is a number, allowed: an integer from 1 to 65536");
  EXPECT_EQ(error_after_data("augment = 1"), "train.toml:3: data.augment: 1 is an integer, allowed: true or false");
  EXPECT_EQ(error_after_data("color = 3"),
            "train.toml:3: data.color: 3 is an integer, allowed: one of rgb, gray, yuv444");
  EXPECT_EQ(error_after_data("[optimizer]\nlr = \"2e-4\""),
            "train.toml:4: optimizer.lr: \"2e-4\" is a string, allowed: a number above 0 up to 10");
  EXPECT_EQ(error_after_data("[schedule]\nmilestones = 5"),
            "train.toml:4: schedule.milestones: 5 is an integer, allowed: an array of integers from 1 to 1000000000");
  EXPECT_EQ(
      error_of("[data]\nscript = 5"),
      "train.toml:2: data.script: 5 is an integer, allowed: a path, or a table { path, weight, start, end, args }");
  EXPECT_EQ(error_of("data = 5"), "train.toml:1: data: 5 is an integer, allowed: a section [data]");
  EXPECT_EQ(error_after_data("[run]\nseed = 1979-05-27"),
            "train.toml:4: run.seed: a date or time, allowed: an integer from 0 up");
}

TEST_F(ConfigReading, ValuesOutOfRangeSayWhatIsAllowed) {
  EXPECT_EQ(error_after_data("batch = 0"),
            "train.toml:3: data.batch: 0 is out of range, allowed: an integer from 1 to 65536");
  EXPECT_THAT(error_after_data("batch = 99999999999"), HasSubstr("99999999999 is out of range"));
  EXPECT_EQ(error_after_data("[optimizer]\nlr = 0.0"),
            "train.toml:4: optimizer.lr: 0 is out of range, allowed: a number above 0 up to 10");
  EXPECT_THAT(error_after_data("[optimizer]\nlr = nan"), HasSubstr("nan is out of range"));
  EXPECT_EQ(error_after_data("color = \"rgbb\""), "train.toml:3: data.color: unknown \"rgbb\" (did you mean \"rgb\"?)");
  EXPECT_EQ(error_after_data("range_in = \"tv\""),
            "train.toml:3: data.range_in: unknown \"tv\" (known: auto, full, limited)");
  EXPECT_EQ(error_after_data("scene_cuts = \"on\""),
            "train.toml:3: data.scene_cuts: unknown \"on\" (known: auto, props, off)");
  EXPECT_EQ(error_after_data("[run]\ndevice = \"gpu\""),
            "train.toml:4: run.device: \"gpu\" is not allowed, allowed: auto, cpu, cuda or cuda:N");
  for (const char* device : {"cuda:", "cuda:x", "cuda:-1", "cuda:0000"}) {
    EXPECT_THAT(error_after_data("[run]\ndevice = \"" + std::string(device) + "\""), HasSubstr("is not allowed"));
  }
  EXPECT_THAT(error_after_data("[run]\nname = \"a/b\""), HasSubstr("a name without slashes"));
  EXPECT_THAT(error_after_data("[validation]\nframes = \"last\""), HasSubstr("allowed: a range a:b"));
}

TEST_F(ConfigReading, ArchitecturesAreCheckedWithoutTheirNetworks) {
  EXPECT_THAT(
      error_after_data("[model]\narch = \"compat\""),
      AllOf(StartsWith("train.toml:4: model.arch: unknown \"compat\" (did you mean \"compact\"? known: compact, "),
            EndsWith("torchscript, module)")));
  EXPECT_EQ(error_after_data("[model]\nscale = 5"),
            "train.toml:4: model.scale: 5 is not offered by compact (offered: 1, 2, 3, 4)");
  EXPECT_EQ(error_after_data("[model]\nfeatures = 0"),
            "train.toml:4: model.features: 0 is out of range, allowed: an integer from 1 to 1024");
  EXPECT_THAT(error_after_data("[model]\nactivation = \"prel\""), HasSubstr("(did you mean \"prelu\"?)"));
  EXPECT_EQ(find_architecture("compact")->options.size(), 3u);
  EXPECT_EQ(find_architecture("nothing"), nullptr);
}

TEST_F(ConfigReading, ListsOfIntegersAreArchitecturesOptions) {
  const std::string swinir = minimal_ + "[model]\narch = \"swinir\"\n";
  const Config config = parse(swinir + "depths = [2, 3]\n", {"model.heads=[6, 5]"});
  EXPECT_EQ(config.model.options.at("depths"), "2,3");
  EXPECT_EQ(config.model.options.at("heads"), "6,5");
  EXPECT_EQ(parse(swinir).model.options.at("depths"), "6,6,6,6");
  const std::string text = to_toml(config);
  EXPECT_THAT(text, HasSubstr("\ndepths = [2, 3]\nheads = [6, 5]\n"));
  EXPECT_THAT(differences(parse_config(text, "other.toml", "/"), config), IsEmpty());
  EXPECT_THAT(config_reference(), HasSubstr("| `depths` | an array of integers from 1 to 256 | `[6, 6, 6, 6]` |"));
  const std::string model = "[model]\narch = \"swinir\"\n";
  EXPECT_EQ(error_after_data(model + "depths = 6"),
            "train.toml:5: model.depths: 6 is an integer, allowed: an array of integers from 1 to 256");
  EXPECT_EQ(error_after_data(model + "depths = []"),
            "train.toml:5: model.depths: an empty array, allowed: an array of integers from 1 to 256");
  EXPECT_THAT(error_after_data(model + "depths = [6, 0]"),
              HasSubstr("model.depths[1]: 0 is out of range, allowed: an integer from 1 to 256"));
}

TEST_F(ConfigReading, NetworksOfTheUsersOwnNeedTheirFile) {
  const Config config = parse(minimal_ + "[model]\narch = \"torchscript\"\nfile = \"w.safetensors\"\nscale = 8");
  EXPECT_EQ(config.model.options.at("file"), (folder_ / "w.safetensors").string());
  EXPECT_EQ(config.model.options.at("receptive_radius_px"), "-1");
  EXPECT_EQ(error_after_data("[model]\narch = \"torchscript\""),
            "train.toml:3: model.file: missing: a TorchScript file");
  EXPECT_THAT(error_after_data("[model]\narch = \"module\"\nmodule = \"none.so\""),
              AllOf(HasSubstr("train.toml:5: model.module: \"none.so\" does not exist"), HasSubstr(folder_.string())));
}

TEST_F(ConfigReading, OnlyModulesTakeArgs) {
  const std::string args = "args = { depth = 3, kind = \"a \\\"b\\\"\" }";
  const Config config = parse(minimal_ + "[model]\narch = \"module\"\nmodule = \"w.safetensors\"\n" + args);
  EXPECT_EQ(config.model.args, (std::map<std::string, std::string>{{"depth", "3"}, {"kind", "a \"b\""}}));
  EXPECT_EQ(error_after_data("[model]\n" + args),
            "train.toml:4: model.args: only for model.arch = \"module\", which is \"compact\"");
  const std::string printed = to_toml(config);
  EXPECT_THAT(differences(config, parse_config(printed, "other.toml", "/")), IsEmpty());
}

TEST_F(ConfigReading, FilesThatDoNotExistAreNamedWithTheirPath) {
  const std::string missing = (folder_ / "sub/none.vpy").string();
  EXPECT_EQ(error_of("[data]\nscript = \"sub/none.vpy\""),
            "train.toml:2: data.script: \"sub/none.vpy\" does not exist (looked for " + missing + ")");
  EXPECT_EQ(error_of("[data]\nscript = [\n  \"a.vpy\",\n  { path = \"sub/none.vpy\" },\n]"),
            "train.toml:4: data.script[1].path: \"sub/none.vpy\" does not exist (looked for " + missing + ")");
  EXPECT_THAT(error_after_data("[model]\npretrained = \"w.pth\""),
              HasSubstr("train.toml:4: model.pretrained: \"w.pth\" does not"));
  EXPECT_THAT(error_of("[data]\nscript = \"\""), HasSubstr("an empty path"));
  EXPECT_THAT(error_of("[data]\nscript = [{ weight = 1 }]"), HasSubstr("data.script[0]: path is missing"));
  EXPECT_THAT(error_of("[data]\nscript = [{ path = \"a.vpy\", start = 5, end = 5 }]"),
              HasSubstr("end 5 is not after start 5"));
  EXPECT_EQ(error_of(""),
            "train.toml: data.script: missing: the script to train on (or data.pairs: two folders of images)");
  EXPECT_EQ(error_of("[data]\nscript = []"),
            "train.toml:2: data.script: missing: the script to train on (or data.pairs: two folders of images)");
}

TEST_F(ConfigReading, PairsOfFoldersAreTablesWithTwoPaths) {
  for (const char* name : {"LR", "HR"}) fs::create_directories(folder_ / name);
  const Config one = parse("[data]\npairs = { input = \"LR/\", target = \"HR/\" }");
  ASSERT_EQ(one.data.pairs.size(), 1u);
  EXPECT_EQ(one.data.pairs[0].input, folder_ / "LR/");
  EXPECT_EQ(one.data.pairs[0].target, folder_ / "HR/");
  EXPECT_EQ(one.data.pairs[0].weight, 1);
  EXPECT_THAT(one.data.script, IsEmpty());

  const Config more = parse(minimal_ +
                            "pairs = [{ input = \"LR\", target = \"HR\", weight = 2 }, { input = \"HR\", target = "
                            "\"LR\" }]\n[validation]\npairs = { input = \"LR\", target = \"HR\" }");
  EXPECT_EQ(more.data.pairs.at(1).input, folder_ / "HR");
  EXPECT_EQ(more.data.pairs[0].weight, 2);
  EXPECT_EQ(more.validation.pairs.size(), 1u);
  const std::string text = to_toml(more);
  EXPECT_THAT(differences(more, parse_config(text, "other.toml", "/")), IsEmpty());

  const Config set = parse(minimal_, {"data.pairs={ input = \"LR\", target = \"HR\" }"});
  EXPECT_EQ(set.data.pairs.at(0).target, folder_ / "HR");
}

TEST_F(ConfigReading, WrongPairsSayWhatIsAllowed) {
  for (const char* name : {"LR", "HR"}) fs::create_directories(folder_ / name);
  EXPECT_EQ(error_of("[data]\npairs = \"LR\""),
            "train.toml:2: data.pairs: \"LR\" is a string, allowed: a table { input, target, weight }");
  EXPECT_EQ(error_of("[data]\npairs = { input = \"LR\" }"),
            "train.toml:2: data.pairs: target is missing: a folder of images");
  EXPECT_EQ(error_of("[data]\npairs = [\n{ input = \"LR\", target = \"HR\" },\n{ input = \"LR\", target = \"GT\" }]"),
            "train.toml:4: data.pairs[1].target: \"GT\" does not exist (looked for " + (folder_ / "GT").string() + ")");
  EXPECT_EQ(
      error_of("[data]\npairs = { input = \"LR\", target = \"a.vpy\" }"),
      "train.toml:2: data.pairs.target: " + (folder_ / "a.vpy").string() + " is a file, allowed: a folder of images");
  EXPECT_THAT(error_of("[data]\npairs = { input = \"\", target = \"HR\" }"),
              HasSubstr("data.pairs.input: an empty path"));
  EXPECT_THAT(error_of("[data]\npairs = { input = \"LR\", tarjet = \"HR\" }"), HasSubstr("(did you mean \"target\"?)"));
  const std::string pairs = "pairs = { input = \"LR\", target = \"HR\" }";
  EXPECT_EQ(error_of("[data]\n" + pairs + "\nwindow = 3"),
            "train.toml:2: data.pairs: its images are single pictures, but data.window is 3: allowed with pairs is 1");
  EXPECT_EQ(error_of("[data]\n" + pairs + "\n[loss]\nl1 = 1\ntemporal = 0.5"),
            "train.toml:5: loss.temporal: loss.temporal is 0.5, but the images of data.pairs are single pictures: "
            "allowed with pairs is 0");
  EXPECT_THAT(error_after_data("window = 3\n[validation]\n" + pairs),
              HasSubstr("train.toml:5: validation.pairs: its images are single pictures"));
  EXPECT_THAT(
      error_after_data("[validation]\n" + pairs + "\nframes = \"0.8:\""),
      HasSubstr("validation.frames: cannot be combined with validation.pairs: the frames are those of data.pairs"));
}

TEST_F(ConfigReading, InvalidTomlNamesTheLine) {
  EXPECT_THAT(error_of("[data]\nscript = \"a.vpy\nbatch = 3"), HasSubstr("train.toml:2: not valid TOML: "));
  EXPECT_THAT(error_after_data("batch = 3\nbatch = 4"), HasSubstr("train.toml:4: not valid TOML: "));
}

TEST_F(ConfigReading, AllProblemsAreListedInTheOrderOfTheFile) {
  EXPECT_EQ(
      error_of("[run]\nsteps = 0\n[data]\nscript = \"a.vpy\"\nbatchh = 1\n[runn]\n[data.x]", {"loss.charbonier=1"}),
      "train.toml:2: run.steps: 0 is out of range, allowed: an integer from 1 to 1000000000\n"
      "train.toml:5: data.batchh: unknown key (did you mean \"batch\"?)\n"
      "train.toml:6: runn: unknown section (did you mean \"run\"?)\n"
      "train.toml:7: data.x: unknown key (known: script, pairs, batch, crop_px, window, frame_step, color, "
      "augment, reuse, "
      "segment_frames, pool_frames, scene_cuts, skip_duplicates, matrix_in, range_in, chromaloc_in)\n"
      "--set loss.charbonier=1: loss.charbonier: unknown key (did you mean \"charbonnier\"?)");
}

TEST_F(ConfigReading, SettingsWinOverTheFile) {
  const Config config = parse(minimal_ + "batch = 4\n[optimizer]\nlr = 1e-3\n",
                              {"data.batch=8", "optimizer.lr = 5e-4", "optimizer.name=adam", "data.matrix_in=709",
                               "schedule.name=multistep", "schedule.milestones=[5, 9]", "run.dir=/x/y", "data.batch=2",
                               "validation.script=b.mkv", "run.name=\"two words\"", "validation.frames="});
  EXPECT_EQ(config.data.batch, 2);
  EXPECT_DOUBLE_EQ(config.optimizer.lr, 5e-4);
  EXPECT_EQ(config.optimizer.name, "adam");
  EXPECT_EQ(config.data.overrides.matrix_in, "709");
  EXPECT_THAT(config.schedule.milestones, ElementsAre(5, 9));
  EXPECT_EQ(config.run.dir, "/x/y");
  EXPECT_EQ(config.validation.script.at(0).path, folder_ / "b.mkv");
  EXPECT_EQ(config.run.name, "two words");
  EXPECT_EQ(config.validation.frames, "");
}

// Whether the file has the term as a number, as a table, or not at all.
TEST_F(ConfigReading, SettingsReachIntoTheTermsOfTheLoss) {
  for (const char* term : {"gan = 0.2\n", "gan = { weight = 0.2 }\n", "\n[loss.gan]\nweight = 0.2\n"}) {
    const Config config =
        parse(minimal_ + "[loss]\nl1 = 1\n" + term, {"loss.gan.kind=hinge", "loss.l1.start=5", "loss.gan.ramp=9"});
    EXPECT_EQ(config.loss.gan.weight, 0.2);
    EXPECT_EQ(config.loss.gan.kind, "hinge");
    EXPECT_EQ(config.loss.gan.ramp, 9);
    EXPECT_EQ(config.loss.l1.weight, 1);
    EXPECT_EQ(config.loss.l1.start, 5);
  }
  const LossConfig perceptual =
      parse(minimal_ + "[loss]\nperceptual = { weights = \"w.safetensors\", criterion = \"mse\" }\n",
            {"loss.perceptual.weight=0.5", "loss.perceptual.weights=d.pth", "loss.perceptual.layers.relu1_1=2"})
          .loss;
  EXPECT_EQ(perceptual.perceptual.weight, 0.5);
  EXPECT_EQ(perceptual.perceptual.weights, folder_ / "d.pth");
  EXPECT_EQ(perceptual.perceptual.criterion, "mse");
  EXPECT_EQ(perceptual.perceptual.layers, (std::map<std::string, double>{{"relu1_1", 2}}));
  EXPECT_EQ(parse(minimal_, {"loss.ssim.ramp=3"}).loss.ssim.weight, 1);  // as in a table that does not say it
  EXPECT_EQ(parse(minimal_, {"loss.ssim=2", "loss.ssim.start=3"}).loss.ssim.weight, 2);
}

TEST_F(ConfigReading, WrongSettingsWithinATermAreNamed) {
  const std::string file = minimal_ + "[loss]\nl1 = 1\ngan = { weight = 0.1 }\n";
  EXPECT_EQ(error_of(file, {"loss.gan.weigth=1"}),
            "--set loss.gan.weigth=1: loss.gan.weigth: unknown key (did you mean \"weight\"?)");
  EXPECT_EQ(error_of(file, {"loss.l1.start=-1"}),
            "--set loss.l1.start=-1: loss.l1.start: -1 is out of range, allowed: an integer from 0 to 1000000000");
  EXPECT_EQ(error_of(file, {"loss.gann.weight=1"}),
            "--set loss.gann.weight=1: loss.gann: unknown key (did you mean \"gan\"?)");
  EXPECT_EQ(error_of(file + "huber_delta = 0.5\n", {"loss.huber_delta.weight=1"}),
            "--set loss.huber_delta.weight=1: loss.huber_delta is no table in the file");
}

TEST_F(ConfigReading, WrongSettingsAreNamedAsTheyWereWritten) {
  EXPECT_EQ(error_of(minimal_, {"optimizer.lrr=1"}),
            "--set optimizer.lrr=1: optimizer.lrr: unknown key (did you mean \"lr\"?)");
  EXPECT_EQ(error_of(minimal_, {"optimiser.lr=1"}),
            "--set optimiser.lr=1: optimiser: unknown section (did you mean \"optimizer\"?)");
  EXPECT_EQ(error_of(minimal_, {"data.batch=0"}),
            "--set data.batch=0: data.batch: 0 is out of range, allowed: an integer from 1 to 65536");
  EXPECT_EQ(
      error_of(minimal_, {"data.batch=3\nwindow = 3"}),
      "--set data.batch=3\nwindow = 3: data.batch: \"3\nwindow = 3\" is a string, allowed: an integer from 1 to 65536");
  EXPECT_THAT(error_of(minimal_, {"data.script=none.vpy"}),
              HasSubstr("--set data.script=none.vpy: data.script: \"none.vpy\""));
  EXPECT_EQ(error_of(minimal_, {"data.script={path=\"a.vpy\", weight=-1}"}),
            "--set data.script={path=\"a.vpy\", weight=-1}: data.script.weight: -1 is out of range, allowed: a number "
            "above 0 up to 1000000000");
  EXPECT_THAT(error_of(minimal_, {"data.script=[\"a.vpy\", {path=\"a.vpy\", wait=1}]"}),
              StartsWith("--set data.script=[\"a.vpy\", {path=\"a.vpy\", wait=1}]: data.script[1].wait: unknown key"));
  EXPECT_THAT(
      error_of(minimal_ + "[optimizer]\nlr = 1e-4\n", {"optimizer.groups=[{match=\"*\", weight_decay=-3}]"}),
      StartsWith("--set optimizer.groups=[{match=\"*\", weight_decay=-3}]: optimizer.groups[0].weight_decay: "));
  for (const char* text : {"steps=3", "run.steps", "=3", ".steps=3", "run.=3"}) {
    EXPECT_EQ(error_of(minimal_, {text}), "--set " + std::string(text) + ": not of the form section.key=value");
  }
}

TEST_F(ConfigReading, LoadsFromAFileAndNamesItsPath) {
  const fs::path file = folder_ / "my run.toml";
  write_file_atomically(file, "[data]\nscript = \"a.vpy\"\nbatch = 0\n");
  try {
    load_config(file);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(file.string() + ":3: data.batch: "));
  }
  const Config config = load_config(file, {"data.batch=2"});
  EXPECT_EQ(config.run.name, "my run");
  EXPECT_EQ(config.data.script.at(0).path, folder_ / "a.vpy");
  try {
    load_config(folder_ / "none.toml");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_THAT(error.what(), HasSubstr("none.toml: ENOENT"));
  }
}

}  // namespace
}  // namespace reelgrad
