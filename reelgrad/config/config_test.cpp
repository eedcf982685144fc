#include "reelgrad/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "reelgrad/base/error.h"
#include "reelgrad/base/files.h"
#include "reelgrad/base/log.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/config/architectures.h"
#include "reelgrad/config/feature_files.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// A folder with the scripts that the documents below name.
class ConfigFile : public ::testing::Test {
 protected:
  ConfigFile() {
    for (const char* name : {"a.vpy", "b.mkv", "sub é/c.vpy", "w.safetensors", "d.pth"}) temporary_.write(name, "");
  }

  Config parse(const std::string& text, const std::vector<std::string>& settings = {}) const {
    return parse_config(text, "train.toml", folder_, settings);
  }

  std::string error_of(const std::string& text, const std::vector<std::string>& settings = {}) const {
    try {
      parse(text, settings);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return error.what();
    }
    return "accepted";
  }

  // The error of a document that has `lines` after one that is right; they begin at line 3.
  std::string error_after_data(const std::string& lines) const {
    return error_of("[data]\nscript = \"a.vpy\"\n" + lines);
  }

  const std::string minimal_ = "[data]\nscript = \"a.vpy\"\n";
  test::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(ConfigFile, TheSmallestHasEveryDefault) {
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

TEST_F(ConfigFile, ReadsEveryKindOfValue) {
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

TEST_F(ConfigFile, UnknownKeysAndSectionsNameTheNearest) {
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

TEST_F(ConfigFile, WrongTypesSayWhatIsAllowed) {
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

TEST_F(ConfigFile, ValuesOutOfRangeSayWhatIsAllowed) {
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

TEST_F(ConfigFile, ArchitecturesAreCheckedWithoutTheirNetworks) {
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

TEST_F(ConfigFile, ListsOfIntegersAreArchitecturesOptions) {
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

TEST_F(ConfigFile, NetworksOfTheUsersOwnNeedTheirFile) {
  const Config config = parse(minimal_ + "[model]\narch = \"torchscript\"\nfile = \"w.safetensors\"\nscale = 8");
  EXPECT_EQ(config.model.options.at("file"), (folder_ / "w.safetensors").string());
  EXPECT_EQ(config.model.options.at("receptive_radius_px"), "-1");
  EXPECT_EQ(error_after_data("[model]\narch = \"torchscript\""),
            "train.toml:3: model.file: missing: a TorchScript file");
  EXPECT_THAT(error_after_data("[model]\narch = \"module\"\nmodule = \"none.so\""),
              AllOf(HasSubstr("train.toml:5: model.module: \"none.so\" does not exist"), HasSubstr(folder_.string())));
}

TEST_F(ConfigFile, OnlyModulesTakeArgs) {
  const std::string args = "args = { depth = 3, kind = \"a \\\"b\\\"\" }";
  const Config config = parse(minimal_ + "[model]\narch = \"module\"\nmodule = \"w.safetensors\"\n" + args);
  EXPECT_EQ(config.model.args, (std::map<std::string, std::string>{{"depth", "3"}, {"kind", "a \"b\""}}));
  EXPECT_EQ(error_after_data("[model]\n" + args),
            "train.toml:4: model.args: only for model.arch = \"module\", which is \"compact\"");
  const std::string printed = to_toml(config);
  EXPECT_THAT(differences(config, parse_config(printed, "other.toml", "/")), IsEmpty());
}

TEST_F(ConfigFile, FilesThatDoNotExistAreNamedWithTheirPath) {
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

TEST_F(ConfigFile, LossTermsFitTheDataAndEachOther) {
  EXPECT_EQ(error_after_data("crop_px = 64\n[loss]\nms_ssim = 1"),
            "train.toml:3: data.crop_px: loss.ms_ssim needs pictures of 176 pixels a side, but data.crop_px = 64 with "
            "model.scale = 2 gives 128: allowed is a crop_px from 88 up");
  EXPECT_EQ(error_after_data("crop_px = 88\n[loss]\nms_ssim = 1\nssim = 1"), "accepted");
  EXPECT_THAT(error_after_data("crop_px = 8\n[model]\nscale = 1\n[loss]\nssim = 1"), HasSubstr("a crop_px from 11 up"));
  EXPECT_THAT(error_after_data("color = \"gray\"\n[loss]\nluma_weight = 2"),
              HasSubstr("train.toml:5: loss.luma_weight: data.color = \"gray\" has no chroma"));
  EXPECT_THAT(error_after_data("[loss]\nssim = 1\nchroma_weight = 0.5"),
              HasSubstr("train.toml:5: loss.chroma_weight: only for l1, mse, charbonnier and huber"));
  EXPECT_THAT(error_after_data("[loss]\ntemporal = 1"), HasSubstr("train.toml:4: loss.temporal: alone"));
}

TEST_F(ConfigFile, WeightsOfTheLossAreNumbersOrTables) {
  const LossConfig loss =
      parse(minimal_ +
            "[loss]\nl1 = { weight = 0.5, start = 100, ramp = 50 }\nssim = { start = 2 }\nfocal_frequency = { alpha = "
            "2 }\n"
            "perceptual = { weight = 2, weights = \"w.safetensors\", layers = { relu1_1 = 0.5, pool2 = 1 } }\n")
          .loss;
  EXPECT_EQ(loss.l1.weight, 0.5);
  EXPECT_EQ(loss.l1.start, 100);
  EXPECT_EQ(loss.l1.ramp, 50);
  EXPECT_EQ(loss.ssim.weight, 1);  // of a table that does not say it
  EXPECT_FALSE(loss.charbonnier.on());
  EXPECT_EQ(loss.focal_frequency.alpha, 2);
  EXPECT_EQ(loss.perceptual.weight, 2);
  EXPECT_EQ(loss.perceptual.weights, folder_ / "w.safetensors");
  EXPECT_EQ(loss.perceptual.layers, (std::map<std::string, double>{{"pool2", 1}, {"relu1_1", 0.5}}));

  EXPECT_EQ(error_after_data("[loss]\nl1 = \"big\""),
            "train.toml:4: loss.l1: \"big\" is a string, allowed: a number from 0 to 1000000, or a table { weight, "
            "start, ramp }");
  EXPECT_EQ(error_after_data("[loss]\nl1 = { weigth = 1 }"),
            "train.toml:4: loss.l1.weigth: unknown key (did you mean \"weight\"?)");
  EXPECT_EQ(error_after_data("[loss.wavelet]\nfilter = \"haar\"\n\nlevels = 9"),
            "train.toml:6: loss.wavelet.levels: 9 is out of range, allowed: an integer from 1 to 5");
}

TEST_F(ConfigFile, NetworksOfFeaturesNameTheFilesThatTheyNeed) {
  EXPECT_EQ(error_after_data("[loss]\nperceptual = 1"),
            "train.toml:4: loss.perceptual.weights: missing: torchvision's VGG19: vgg19-dcbb9e9d.pth, published at "
            "https://download.pytorch.org/models/vgg19-dcbb9e9d.pth (its SHA-256 begins with dcbb9e9d); reelgrad "
            "downloads nothing");
  EXPECT_THAT(error_after_data("[loss]\nperceptual = { weights = \"vgg.pth\" }"),
              AllOf(HasSubstr("train.toml:4: loss.perceptual.weights: \"vgg.pth\" does not exist"),
                    HasSubstr("vgg19-dcbb9e9d.pth, published at")));
  EXPECT_THAT(error_after_data("[loss]\nlpips = 1\ndists = 1"),
              AllOf(HasSubstr("loss.lpips.backbone: missing: "), HasSubstr("loss.dists.backbone: missing: ")));
  EXPECT_THAT(error_after_data("[loss]\nperceptual = { weights = \"w.safetensors\", layers = { conv3_5 = 1 } }"),
              HasSubstr("train.toml:4: loss.perceptual.layers.conv3_5: no layer of VGG19, allowed: conv1_1"));
  EXPECT_THAT(error_after_data("crop_px = 8\n[model]\nscale = 1\n[loss]\nl1 = 1\nwavelet = { filter = \"sym7\" }"),
              HasSubstr("loss.wavelet needs pictures of 14 pixels"));
  EXPECT_THAT(error_after_data("color = \"gray\"\n[loss]\ncolor = 1"), HasSubstr("has no colour"));
}

TEST(FeatureFiles, LayersHaveTorchvisionsNumbers) {
  EXPECT_EQ(vgg19_layer("conv1_1"), 0);
  EXPECT_EQ(vgg19_layer("relu1_2"), 3);
  EXPECT_EQ(vgg19_layer("pool1"), 4);
  EXPECT_EQ(vgg19_layer("conv3_4"), 16);
  EXPECT_EQ(vgg19_layer("conv5_4"), 34);
  EXPECT_EQ(vgg19_layer("pool5"), 36);
  EXPECT_EQ(vgg19_layer("conv2_3"), std::nullopt);
}

TEST_F(ConfigFile, RulesBetweenKeysNameBoth) {
  EXPECT_EQ(error_after_data("window = 4"), "train.toml:3: data.window: 4 is even, allowed: an odd number");
  EXPECT_EQ(
      error_after_data("window = 5\nframe_step = 4"),
      "train.toml:3: data.window: a window of 5 frames, 4 apart, spans 17, which is more than segment_frames = 16");
  EXPECT_EQ(error_after_data("segment_frames = 8\nframe_step = 8\n[loss]\nl1 = 1\ntemporal = 1"),
            "train.toml:3: data.segment_frames: a window of 2 frames (one more for loss.temporal), 8 apart, spans 9, "
            "which is more than segment_frames = 8");
  EXPECT_EQ(
      error_after_data("pool_frames = 8"),
      "train.toml:3: data.pool_frames: a pool of 8 frames cannot hold a segment of 16 (pool_frames must be at least "
      "segment_frames)");
  EXPECT_THAT(error_after_data("[validation]\nscript = \"b.mkv\"\nframes = \"0.8:\""),
              HasSubstr("train.toml:5: validation.frames: cannot be combined with validation.script"));
  EXPECT_THAT(error_after_data("[schedule]\nname = \"multistep\""), HasSubstr("schedule.milestones: missing"));
  EXPECT_THAT(error_after_data("[schedule]\nname = \"multistep\"\nmilestones = [5, 5]"), HasSubstr("5, 5 do not rise"));
  EXPECT_THAT(error_after_data("[schedule]\nmilestones = [5]"), HasSubstr("only for schedule.name = \"multistep\""));
  EXPECT_THAT(error_after_data("[schedule]\nmin_lr = 1e-6"), HasSubstr("only for schedule.name = \"cosine\""));
  EXPECT_THAT(error_after_data("[schedule]\nname = \"cosine\"\nmin_lr = 0.5"),
              HasSubstr("0.5 is above optimizer.lr = 0.0002"));
  EXPECT_THAT(error_after_data("[optimizer]\nname = \"schedule_free_adamw\"\nbeta1 = 0"),
              HasSubstr("train.toml:5: optimizer.beta1: 0 leaves schedule_free_adamw without an average"));
}

TEST_F(ConfigFile, PairsOfFoldersAreTablesWithTwoPaths) {
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

TEST_F(ConfigFile, WrongPairsSayWhatIsAllowed) {
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

TEST_F(ConfigFile, InvalidTomlNamesTheLine) {
  EXPECT_THAT(error_of("[data]\nscript = \"a.vpy\nbatch = 3"), HasSubstr("train.toml:2: not valid TOML: "));
  EXPECT_THAT(error_after_data("batch = 3\nbatch = 4"), HasSubstr("train.toml:4: not valid TOML: "));
}

TEST_F(ConfigFile, AllProblemsAreListedInTheOrderOfTheFile) {
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

TEST_F(ConfigFile, WhatARunNeverReachesIsWarnedOf) {
  std::vector<std::string> said;
  log::set_sink([&](log::Level, std::string_view message) { said.emplace_back(message); });
  const std::string schedule = minimal_ + "[schedule]\nname = \"multistep\"\nmilestones = [50, 99, 100, 200]\n";
  parse(schedule + "warmup_steps = 500\n", {"run.steps=100"});
  parse(schedule, {"run.steps=200", "schedule.warmup_steps=200"});
  parse(schedule, {"run.steps=201"});
  log::set_sink({});
  EXPECT_THAT(said, ElementsAre("train.toml:5: schedule.milestones: 100, 200 are never reached: the run ends at "
                                "run.steps = 100",
                                "train.toml:6: schedule.warmup_steps: 500, but the run ends at run.steps = 100: the "
                                "learning rate never comes up to optimizer.lr",
                                "train.toml:5: schedule.milestones: 200 is never reached: the run ends at run.steps = "
                                "200"));
}

TEST_F(ConfigFile, SettingsWinOverTheFile) {
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

TEST_F(ConfigFile, WrongSettingsAreNamedAsTheyWereWritten) {
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

// Every key away from its default, with text that needs escaping.
Config unusual_config(const fs::path& folder) {
  Config c;
  c.run = {"näme \"q\" \\ \t", folder / "run", 7, 99, "cuda:3", true, 3};
  c.data.script = {{folder / "a.vpy", 1.0 / 3, 2, 50, {{"k e y", "v\"\n\x7F"}}}, {folder / "sub é/c.vpy"}};
  c.data.batch = 3;
  c.data.crop_px = 48;
  c.data.window = 5;
  c.data.frame_step = 2;
  c.data.color = "yuv444";
  c.data.augment = false;
  c.data.reuse = 5;
  c.data.segment_frames = 20;
  c.data.pool_frames = 40;
  c.data.scene_cuts = "props";
  c.data.skip_duplicates = false;
  c.data.overrides = {"170m", "full", "bottom"};
  c.model = {"compact",
             4,
             folder / "w.safetensors",
             "partial",
             {{"features", "24"}, {"convs", "6"}, {"activation", "leakyrelu"}}};
  c.loss = {.l1 = 1,
            .mse = 2,
            .charbonnier = 0,
            .huber = 3,
            .ssim = 4,
            .ms_ssim = 5,
            .fft = 6,
            .edge = 7,
            .temporal = 8,
            .charbonnier_eps = 1e-9,
            .huber_delta = 0.5,
            .edge_operator = "laplacian",
            .luma_weight = 2,
            .chroma_weight = 0.5};
  c.loss.l1.start = 3, c.loss.l1.ramp = 4;
  c.loss.ldl = 9;
  c.loss.perceptual = 10;
  c.loss.perceptual.weights = folder / "w.safetensors";
  c.loss.perceptual.layers = {{"conv1_1", 0.1}, {"relu5_4", 2}};
  c.loss.perceptual.criterion = "gram";
  c.loss.lpips = 11;
  c.loss.lpips.net = "alex";
  c.loss.lpips.backbone = c.loss.lpips.weights = folder / "w.safetensors";
  c.loss.dists = 12;
  c.loss.dists.backbone = c.loss.dists.weights = folder / "w.safetensors";
  c.loss.focal_frequency = 13;
  c.loss.focal_frequency.alpha = 2;
  c.loss.wavelet = 14;
  c.loss.wavelet.filter = "db2", c.loss.wavelet.levels = 2, c.loss.wavelet.hh = 0.5;
  c.loss.color = 15;
  c.loss.color.block_px = 8, c.loss.color.start = 5;
  c.optimizer = {.name = "sgd",
                 .lr = 0.1,
                 .beta1 = 0.5,
                 .beta2 = 0.75,
                 .eps = 1e-7,
                 .momentum = 0.5,
                 .nesterov = true,
                 .weight_decay = 0.01,
                 .no_decay = {"*.bias"},
                 .groups = {{"body.*", 0.5, 0.25}},
                 .clip_norm = 0.3,
                 .clip_value = 0.2,
                 .accumulate = 4};
  c.schedule = {.name = "multistep",
                .warmup_steps = 3,
                .milestones = {4, 5},
                .gamma = 0.1,
                .rise = 0.5,
                .start_divisor = 2,
                .end_divisor = 3};
  c.loss.gan.weight = 0.5;
  c.loss.gan.net = "patchgan";
  c.loss.gan.kind = "lsgan";
  c.loss.gan.label_smoothing = 0.25;
  c.discriminator = {.features = 8,
                     .scales = 2,
                     .layers = 4,
                     .norm = "spectral",
                     .skips = false,
                     .frames = 2,
                     .pretrained = folder / "d.pth",
                     .iters = 2,
                     .init_iters = 4,
                     .r1 = 0.5,
                     .patience = 9};
  static_cast<OptimizerConfig&>(c.discriminator.optimizer) = c.optimizer;
  c.discriminator.optimizer.accumulate = 1;
  c.discriminator.optimizer.lr = 0.2;
  c.discriminator.schedule = c.schedule;
  c.discriminator.schedule.gamma = 0.2;
  c.ema = {.decay = 0.9, .warmup = false, .every = 2};
  c.precision = {.amp = "bf16", .tf32 = false};
  c.memory = {.checkpointing = "5", .offload = true, .on_oom = "fail", .reserve_mb = 7};
  c.run.graph = "off";
  c.validation.script = {{folder / "b.mkv"}};
  c.validation.every = 11;
  c.validation.best_by = "ssim_y";
  c.checkpoint = {12, 13};
  return c;
}

TEST_F(ConfigFile, PrintedAndReadAgainIsTheSame) {
  for (const Config& config : {parse(minimal_), unusual_config(folder_)}) {
    const std::string text = to_toml(config);
    const Config again = parse_config(text, "other.toml", "/");
    EXPECT_THAT(differences(config, again), IsEmpty());
    EXPECT_EQ(to_toml(again), text);
  }
}

TEST_F(ConfigFile, DifferencesNameEveryKeyThatChanged) {
  Config before = parse(minimal_), after = before;
  EXPECT_THAT(differences(before, after), IsEmpty());
  after.optimizer.lr = 1e-4;
  after.model.options["features"] = "24";
  EXPECT_THAT(differences(before, after), ElementsAre("model.features: 64 -> 24", "optimizer.lr: 0.0002 -> 0.0001"));
  // Every key differs from its default but the architecture with its args, and the five keys that exclude others.
  std::size_t keys = 0;
  std::istringstream lines(to_toml(before));
  for (std::string line; std::getline(lines, line);) keys += line.find(" = ") != std::string::npos;
  EXPECT_EQ(differences(before, unusual_config(folder_)).size(), keys - 7);
}

TEST_F(ConfigFile, TheAdversarialTermIsAWeightOrATable) {
  EXPECT_EQ(parse(minimal_ + "[loss]\nl1 = 1.0\ngan = 0.2\n").loss.gan.weight, 0.2);
  const Config config = parse(minimal_ +
                              "[loss]\nl1 = 1.0\ngan = { weight = 0.1, net = \"unet_sn\" }\n"
                              "[optimizer]\nlr = 1e-4\nbeta2 = 0.9\ngroups = [{ match = \"body.*\" }]\n"
                              "[schedule]\nname = \"cosine\"\n[discriminator]\nfeatures = 32\n"
                              "[discriminator.optimizer]\nlr = 5e-5\n");
  EXPECT_EQ(config.loss.gan.weight, 0.1);
  EXPECT_EQ(config.loss.charbonnier, 0);
  EXPECT_EQ(config.discriminator.features, 32);
  // What is not given is as in [optimizer] and [schedule], but for patterns of the network's names.
  EXPECT_EQ(config.discriminator.optimizer.lr, 5e-5);
  EXPECT_EQ(config.discriminator.optimizer.beta2, 0.9);
  EXPECT_THAT(config.discriminator.optimizer.groups, IsEmpty());
  EXPECT_EQ(config.discriminator.schedule.name, "cosine");
  EXPECT_EQ(
      parse(minimal_ + "[schedule]\nname = \"cosine\"\nmin_lr = 1e-6\n[discriminator.schedule]\nwarmup_steps = 3\n")
          .discriminator.schedule.min_lr,
      0);
  EXPECT_EQ(parse_config(minimal_, "train.toml", folder_, {"loss.gan.weight=0.3", "discriminator.optimizer.lr=1e-5"})
                .discriminator.optimizer.lr,
            1e-5);
}

TEST_F(ConfigFile, TheBestIsChosenByWhatIsThere) {
  EXPECT_EQ(best_measure(parse(minimal_)), "psnr_rgb");
  const std::string measured = minimal_ + "[loss]\nl1 = 1\nlpips = { weight = 0, backbone = \"w.safetensors\" }\n";
  EXPECT_EQ(best_measure(parse(measured)), "lpips");
  EXPECT_EQ(best_measure(parse(measured + "[validation]\nbest_by = \"ssim_y\"\n")), "ssim_y");
  EXPECT_THAT(error_of(measured + "[validation]\nbest_by = \"dists\"\n"),
              HasSubstr("validation.best_by: dists needs its network: loss.dists = { weight = 0, backbone"));
}

TEST_F(ConfigFile, AdversarialTrainingThatCannotBeIsRefused) {
  const auto error_with = [&](const std::string& gan, const std::string& discriminator = "") {
    return error_of(minimal_ + "[loss]\ngan = " + gan + "\n" + discriminator);
  };
  EXPECT_THAT(error_with("0.1\ncharbonnier = 0"), HasSubstr("loss.gan: alone it does not know the target"));
  EXPECT_EQ(error_of(minimal_ + "[loss]\ngan = 0.1\n", {"loss.gan.kind=hinge"}),
            "--set loss.gan.kind=hinge: loss.gan is no table in the file");
  EXPECT_THAT(error_with("{ weight = 1, net = \"unet\" }"), HasSubstr("loss.gan.net: unknown \"unet\""));
  EXPECT_THAT(error_with("{ weight = 1, kind = \"hinge\", label_smoothing = 0.1 }"),
              HasSubstr("loss.gan.label_smoothing: hinge has no labels"));
  EXPECT_THAT(error_with("0.1", "[discriminator]\nframes = 2"), HasSubstr("discriminator.frames: "));
  EXPECT_THAT(error_with("0.1", "[discriminator]\ninit_iters = 20000"),
              HasSubstr("discriminator.init_iters: the network would not be updated once in run.steps = 20000"));
  EXPECT_THAT(error_with("0.1", "[discriminator]\nlr = 1"), HasSubstr("discriminator.lr: unknown key"));
  EXPECT_THAT(error_with("0.1", "[discriminator.optimizer]\naccumulate = 2"),
              HasSubstr("discriminator.optimizer.accumulate: unknown key"));
  EXPECT_THAT(error_with("0.1", "[discriminator.schedule]\nname = \"multistep\""),
              HasSubstr("discriminator.schedule.milestones: missing"));
  const std::string adversarial = minimal_ + "[loss]\ngan = 0.1\n";
  EXPECT_THAT(
      error_of(adversarial, {"discriminator.schedule.name=multistep", "discriminator.schedule.milestones=[3,1]"}),
      HasSubstr("3, 1 do not rise"));
  EXPECT_THAT(error_of(adversarial, {"discriminator.schedule.name=cosine", "discriminator.schedule.min_lr=1"}),
              HasSubstr("1 is above discriminator.optimizer.lr"));
  EXPECT_THAT(error_of(adversarial, {"discriminator.optimizer.nesterov=true"}),
              HasSubstr("only for discriminator.optimizer.name = \"sgd\""));
}

TEST_F(ConfigFile, LoadsFromAFileAndNamesItsPath) {
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

TEST(ConfigReference, HasARowForEveryKey) {
  const std::string page = config_reference();
  std::string section;
  std::istringstream lines(to_toml(Config{}));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("[")) {
      section = line;
      EXPECT_THAT(page, HasSubstr("## " + section + "\n"));
    } else if (!line.empty()) {
      EXPECT_THAT(page, HasSubstr("| `" + line.substr(0, line.find(' ')) + "` | ")) << section;
    }
  }
  EXPECT_THAT(page, HasSubstr("| `batch` | an integer from 1 to 65536 | `16` | samples of one micro-batch |"));
  EXPECT_THAT(page, HasSubstr("| `features` | an integer from 1 to 1024 | `64` | "));
}

}  // namespace
}  // namespace reelgrad
