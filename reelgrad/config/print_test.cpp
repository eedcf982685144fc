// To text and back, differences, and the reference page.
#include <sstream>

#include "reelgrad/config/config_testing.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ConfigText : public test::ConfigFile {};

// Every key away from its default, with text that needs escaping.
Config unusual_config(const fs::path& folder) {
  Config c;
  c.run = {"näme \"q\" \\ \t", folder / "run", 7, 99, "cuda:3", true, 3, false};
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
  c.loss.ldl.ema = false;
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
                     .scaler = "shared",
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

TEST_F(ConfigText, PrintedAndReadAgainIsTheSame) {
  for (const Config& config : {parse(minimal_), unusual_config(folder_)}) {
    const std::string text = to_toml(config);
    const Config again = parse_config(text, "other.toml", "/");
    EXPECT_THAT(differences(config, again), IsEmpty());
    EXPECT_EQ(to_toml(again), text);
  }
}

TEST_F(ConfigText, DifferencesNameEveryKeyThatChanged) {
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
