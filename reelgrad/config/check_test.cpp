// Rules between keys.
#include "reelgrad/config/check.h"

#include "reelgrad/base/log.h"
#include "reelgrad/config/config_testing.h"
#include "reelgrad/config/feature_files.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ConfigRules : public test::ConfigFile {};

TEST_F(ConfigRules, LossTermsFitTheDataAndEachOther) {
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

TEST_F(ConfigRules, WeightsOfTheLossAreNumbersOrTables) {
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

TEST_F(ConfigRules, NetworksOfFeaturesNameTheFilesThatTheyNeed) {
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

TEST_F(ConfigRules, RulesBetweenKeysNameBoth) {
  EXPECT_EQ(error_after_data("window = 4"), "train.toml:3: data.window: 4 is even, allowed: an odd number");
  EXPECT_EQ(
      error_after_data("window = 5\nframe_step = 4"),
      "train.toml:3: data.window: a window of 5 frames, 4 apart, spans 17, which is more than segment_frames = 16");
  EXPECT_EQ(error_after_data("segment_frames = 8\nframe_step = 8\n[loss]\nl1 = 1\ntemporal = 1"),
            "train.toml:3: data.segment_frames: a window of 2 frames (one more for loss.temporal), 8 apart, spans 9, "
            "which is more than segment_frames = 8");
  EXPECT_EQ(error_after_data("segment_frames = 8\nwindow = 5\n[loss]\nl1 = 1\ngan = 1\n[discriminator]\nframes = 5"),
            "train.toml:3: data.segment_frames: a window of 9 frames (4 more for discriminator.frames = 5), 1 apart, "
            "spans 9, which is more than segment_frames = 8");
  EXPECT_THAT(error_of(minimal_ + "[loss]\nl1 = 1\ngan = 1", {"discriminator.frames=20"}),
              HasSubstr("--set discriminator.frames=20: discriminator.frames: a window of 20 frames (19 more for "));
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

TEST_F(ConfigRules, WhatARunNeverReachesIsWarnedOf) {
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

TEST_F(ConfigRules, TheAdversarialTermIsAWeightOrATable) {
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

TEST_F(ConfigRules, TheBestIsChosenByWhatIsThere) {
  EXPECT_EQ(best_measure(parse(minimal_)), "psnr_rgb");
  const std::string measured = minimal_ + "[loss]\nl1 = 1\nlpips = { weight = 0, backbone = \"w.safetensors\" }\n";
  EXPECT_EQ(best_measure(parse(measured)), "lpips");
  EXPECT_EQ(best_measure(parse(measured + "[validation]\nbest_by = \"ssim_y\"\n")), "ssim_y");
  EXPECT_THAT(error_of(measured + "[validation]\nbest_by = \"dists\"\n"),
              HasSubstr("validation.best_by: dists needs its network: loss.dists = { weight = 0, backbone"));
}

TEST_F(ConfigRules, OnePictureHasNoStatisticsForALastNormOfOnePlace) {
  const auto error_with = [&](const std::string& data, const std::string& more = "") {
    return error_after_data(data + "\n[loss]\nl1 = 1\ngan = { net = \"patch_vgg\" }\n" + more);
  };
  EXPECT_EQ(error_with("batch = 1\ncrop_px = 16"),
            "train.toml:3: data.batch: patch_vgg cannot normalise a batch of one picture of 32 pixels: allowed are a "
            "data.batch of 2 or more, or a data.crop_px of 32 or more");
  EXPECT_EQ(error_with("batch = 2\ncrop_px = 16"), "accepted");
  EXPECT_EQ(error_with("batch = 1\ncrop_px = 32"), "accepted");
  EXPECT_THAT(error_with("batch = 1\ncrop_px = 32", "[discriminator]\nscales = 2"), HasSubstr("as its last scale has"));
  // Two frames are two pictures, unless they are judged together.
  EXPECT_EQ(error_with("batch = 1\ncrop_px = 16", "temporal = 1"), "accepted");
  EXPECT_THAT(error_with("batch = 1\ncrop_px = 16", "temporal = 1\n[discriminator]\nframes = 2"),
              HasSubstr("one picture of 32 pixels"));
}

TEST_F(ConfigRules, TheAveragesOutputNeedsAnAverage) {
  const std::string without = minimal_ + "[ema]\ndecay = 0\n[loss]\nldl = ";
  EXPECT_EQ(error_of(without + "1"), "accepted");
  EXPECT_EQ(error_of(without + "{ ema = true }"),
            "train.toml:6: loss.ldl.ema: no average of the weights is kept: it needs an ema.decay above 0");
  EXPECT_EQ(error_of(without + "{ ema = true }\n[optimizer]\nname = \"schedule_free_adamw\""), "accepted");
  EXPECT_TRUE(parse(minimal_ + "[loss]\nldl = 1").loss.ldl.ema);
}

TEST_F(ConfigRules, AdversarialTrainingThatCannotBeIsRefused) {
  const auto error_with = [&](const std::string& gan, const std::string& discriminator = "") {
    return error_of(minimal_ + "[loss]\ngan = " + gan + "\n" + discriminator);
  };
  EXPECT_THAT(error_with("0.1\ncharbonnier = 0"), HasSubstr("loss.gan: alone it does not know the target"));
  EXPECT_THAT(error_with("{ weight = 1, net = \"unet\" }"), HasSubstr("loss.gan.net: unknown \"unet\""));
  EXPECT_THAT(error_with("{ weight = 1, kind = \"hinge\", label_smoothing = 0.1 }"),
              HasSubstr("loss.gan.label_smoothing: hinge has no labels"));
  fs::create_directories(folder_ / "LR");
  EXPECT_EQ(
      error_of("[data]\npairs = { input = \"LR\", target = \"LR\" }\n[loss]\ngan = 0.1\n[discriminator]\nframes = 3"),
      "train.toml:6: discriminator.frames: discriminator.frames is 3, but the images of data.pairs are single "
      "pictures: allowed with pairs is 1");
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

}  // namespace
}  // namespace reelgrad
