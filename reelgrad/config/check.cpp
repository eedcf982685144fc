#include "reelgrad/config/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>
#include <vector>

#include "reelgrad/config/architectures.h"
#include "reelgrad/config/feature_files.h"
#include "reelgrad/config/fields.h"

namespace reelgrad {
namespace {

// The key to blame: the first of these that somebody wrote, else the first.
std::string written_one(const Source& source, std::initializer_list<const char*> keys) {
  const auto found = std::ranges::find_if(keys, [&](const char* key) { return source.has(key); });
  return found == keys.end() ? *keys.begin() : *found;
}

// Why a sample has more frames than its window.
std::string more_frames(const Config& config) {
  const int frames = sample_frames(config);
  if (frames == 1) return "";
  const bool judged = config.loss.gan.on() && config.discriminator.frames == frames;
  return fmt::format(" ({} more for {})", frames == 2 ? "one" : std::to_string(frames - 1),
                     judged ? fmt::format("discriminator.frames = {}", frames) : "loss.temporal");
}

void check_data(const Config& config, Source& source) {
  const DataConfig& data = config.data;
  if (data.script.empty() && data.pairs.empty()) {
    source.report("data.script", "missing: the script to train on (or data.pairs: two folders of images)");
  }
  if (data.window % 2 == 0)
    source.report("data.window", fmt::format("{} is even, allowed: an odd number", data.window));
  const int frames = data.window + sample_frames(config) - 1;
  const int span = (frames - 1) * data.frame_step + 1;
  if (data.segment_frames < span) {
    source.report(
        written_one(source, {"data.segment_frames", "data.window", "data.frame_step", "discriminator.frames"}),
        fmt::format("a window of {} frames{}, {} apart, spans {}, which is more than segment_frames = {}", frames,
                    more_frames(config), data.frame_step, span, data.segment_frames));
  }
  if (data.pool_frames < data.segment_frames) {
    source.report(
        written_one(source, {"data.pool_frames", "data.segment_frames"}),
        fmt::format("a pool of {} frames cannot hold a segment of {} (pool_frames must be at least segment_frames)",
                    data.pool_frames, data.segment_frames));
  }
}

constexpr std::int64_t kLargestEffectiveBatch = 1 << 24;

void check_effective_batch(const Config& config, Source& source) {
  const std::int64_t samples = std::int64_t{config.data.batch} * config.optimizer.accumulate;
  if (samples <= kLargestEffectiveBatch) return;
  source.report(written_one(source, {"optimizer.accumulate", "data.batch"}),
                fmt::format("{} samples a step (data.batch * optimizer.accumulate), allowed: up to {}", samples,
                            kLargestEffectiveBatch));
}

void check_size_for(const char* key, bool on, int smallest, const Config& config, Source& source) {
  const int size = config.data.crop_px * config.model.scale;
  if (!on || size >= smallest) return;
  source.report(written_one(source, {"data.crop_px", key}),
                fmt::format("{} needs pictures of {} pixels a side, but data.crop_px = {} with model.scale = {} gives "
                            "{}: allowed is a crop_px from {} up",
                            key, smallest, config.data.crop_px, config.model.scale, size,
                            (smallest + config.model.scale - 1) / config.model.scale));
}

void check_plane_weights(const Config& config, Source& source) {
  const LossConfig& loss = config.loss;
  if (loss.luma_weight == 1 && loss.chroma_weight == 1) return;
  const std::string key = written_one(source, {"loss.luma_weight", "loss.chroma_weight"});
  if (loss.luma_weight + loss.chroma_weight == 0) source.report(key, "luma and chroma both weigh 0");
  if (config.data.color == "gray") {
    source.report(key, "data.color = \"gray\" has no chroma to weigh luma against: allowed with it is 1");
  }
  if (!loss.l1.on() && !loss.mse.on() && !loss.charbonnier.on() && !loss.huber.on()) {
    source.report(key, "only for l1, mse, charbonnier and huber, which all weigh 0");
  }
}

void check_weights(const Config& config, Source& source) {
  const auto weights = loss_weights(config.loss);
  const auto on = std::ranges::count_if(weights, [](const auto& term) { return term.second.on(); });
  if (on == 0) source.report("loss.charbonnier", "all weights of the loss are 0: nothing would be trained");
  if (on == 1 && config.loss.temporal.on()) {
    source.report("loss.temporal",
                  "alone it does not see what is wrong in both frames alike: give another term a weight too, as "
                  "loss.charbonnier = 1");
  }
  if (on == 1 && config.loss.gan.on()) {
    source.report("loss.gan",
                  "alone it does not know the target: give another term a weight too, as loss.charbonnier = 1");
  }
  for (const auto& [name, weight] : weights) {
    if (!weight.on() || weight.start < config.run.steps) continue;
    const std::string key = fmt::format("loss.{}", name);
    source.warn(
        key, fmt::format("begins after {} steps, but the run ends at run.steps = {}", weight.start, config.run.steps));
  }
}

void check_named(const char* key, bool on, const std::filesystem::path& file, std::string_view what, Source& source) {
  if (on && file.empty()) source.report(key, fmt::format("missing: {}", what));
}

void check_perceptual(const PerceptualConfig& perceptual, Source& source) {
  if (!perceptual.on()) return;
  if (perceptual.layers.empty()) source.report("loss.perceptual.layers", "empty, allowed: one layer or more");
  for (const auto& [name, weight] : perceptual.layers) {
    if (vgg19_layer(name)) continue;
    source.report(fmt::format("loss.perceptual.layers.{}", name),
                  "no layer of VGG19, allowed: conv1_1 to conv5_4 (before the activation), relu1_1 to relu5_4 (after "
                  "it), pool1 to pool5");
  }
}

void check_features(const Config& config, Source& source) {
  const LossConfig& loss = config.loss;
  check_perceptual(loss.perceptual, source);
  check_named("loss.perceptual.weights", loss.perceptual.on(), loss.perceptual.weights, kNoVgg19, source);
  check_named("loss.lpips.backbone", loss.lpips.on(), loss.lpips.backbone, kNoLpipsBackbone, source);
  check_named("loss.dists.backbone", loss.dists.on(), loss.dists.backbone, kNoVgg16, source);
  check_size_for("loss.perceptual", loss.perceptual.on(), kSmallestForVgg, config, source);
  check_size_for("loss.lpips", loss.lpips.on(), loss.lpips.net == "alex" ? kSmallestForAlexnet : kSmallestForVgg,
                 config, source);
  check_size_for("loss.dists", loss.dists.on(), kSmallestForVgg, config, source);
}

void check_color(const Config& config, Source& source) {
  const ColorLossConfig& color = config.loss.color;
  if (!color.on()) return;
  if (config.data.color == "gray")
    source.report("loss.color", "data.color = \"gray\" has no colour: allowed with it is 0");
  check_size_for("loss.color", true, color.block_px, config, source);
}

void check_loss(const Config& config, Source& source) {
  const LossConfig& loss = config.loss;
  check_weights(config, source);
  check_size_for("loss.ssim", loss.ssim.on(), kSmallestForSsim, config, source);
  check_size_for("loss.ms_ssim", loss.ms_ssim.on(), kSmallestForMsSsim, config, source);
  check_size_for("loss.wavelet", loss.wavelet.on(), smallest_for(loss.wavelet), config, source);
  check_plane_weights(config, source);
  check_features(config, source);
  check_color(config, source);
  if (loss.ldl.on() && loss.ldl.ema && source.has("loss.ldl.ema") && !keeps_average(config)) {
    source.report("loss.ldl.ema", "no average of the weights is kept: it needs an ema.decay above 0");
  }
}

// `section`: "optimizer", or the discriminator's.
void check_optimizer(const OptimizerConfig& optimizer, const std::string& section, Source& source) {
  if (optimizer.nesterov && (optimizer.name != "sgd" || optimizer.momentum == 0)) {
    source.report(section + ".nesterov", fmt::format("only for {}.name = \"sgd\" with a momentum", section));
  }
  if (optimizer.name == "schedule_free_adamw" && optimizer.beta1 == 0) {
    source.report(section + ".beta1", "0 leaves schedule_free_adamw without an average, allowed: above 0");
  }
  for (std::size_t i = 0; i < optimizer.groups.size(); ++i) {
    const double decay = optimizer.groups[i].weight_decay;
    if (decay < 0 && decay != -1) {
      source.report(fmt::format("{}.groups[{}].weight_decay", section, i), fmt::format("{} is below 0", decay));
    }
  }
}

// Steps that a run does not reach: a shorter run of the same file may want that.
void warn_of_what_comes_too_late(const ScheduleConfig& schedule, const std::string& section, std::int64_t steps,
                                 const std::string& optimizer, Source& source) {
  std::vector<std::int64_t> late;
  std::ranges::copy_if(schedule.milestones, std::back_inserter(late),
                       [&](std::int64_t milestone) { return milestone >= steps; });
  if (!late.empty()) {
    source.warn(section + ".milestones", fmt::format("{} {} never reached: the run ends at run.steps = {}",
                                                     fmt::join(late, ", "), late.size() == 1 ? "is" : "are", steps));
  }
  if (schedule.warmup_steps > steps) {
    source.warn(section + ".warmup_steps",
                fmt::format("{}, but the run ends at run.steps = {}: the learning rate never comes up to {}.lr",
                            schedule.warmup_steps, steps, optimizer));
  }
}

// `section` and `optimizer`: their names.
void check_schedule(const ScheduleConfig& schedule, const std::string& section, double lr, const std::string& optimizer,
                    std::int64_t steps, Source& source) {
  const auto& milestones = schedule.milestones;
  if (schedule.name == "multistep" && milestones.empty()) {
    source.report(
        section + ".milestones",
        fmt::format("missing: the steps at which the learning rate falls ({}.name is \"multistep\")", section));
  }
  if (schedule.name != "multistep" && !milestones.empty()) {
    source.report(section + ".milestones",
                  fmt::format("only for {}.name = \"multistep\", which is \"{}\"", section, schedule.name));
  }
  if (std::ranges::adjacent_find(milestones, std::greater_equal<>{}) != milestones.end()) {
    source.report(section + ".milestones", fmt::format("{} do not rise", fmt::join(milestones, ", ")));
  }
  if (schedule.name != "cosine" && schedule.name != "linear" && schedule.min_lr > 0) {
    source.report(section + ".min_lr",
                  fmt::format("only for {}.name = \"cosine\" and \"linear\", which is \"{}\"", section, schedule.name));
  }
  if (schedule.name == "onecycle" && schedule.warmup_steps > 0) {
    source.report(section + ".warmup_steps", fmt::format("onecycle has a rise of its own: {}.rise", section));
  }
  warn_of_what_comes_too_late(schedule, section, steps, optimizer, source);
  if (schedule.min_lr > lr) {
    source.report(section + ".min_lr", fmt::format("{} is above {}.lr = {}", schedule.min_lr, optimizer, lr));
  }
}

// Each halving of patch_vgg but the first is followed by a batch norm, whose last sees 1x1 where the picture is of 32
// pixels: with one picture it has no statistics.
void check_batch_of_discriminator(const Config& config, Source& source) {
  constexpr int kSmallest = 32;
  const int size = (config.data.crop_px * config.model.scale) >> (config.discriminator.scales - 1);
  const int pictures = config.data.batch * (config.discriminator.frames > 1 ? 1 : sample_frames(config));
  if (config.loss.gan.net != "patch_vgg" || size != kSmallest || pictures > 1) return;
  source.report(written_one(source, {"data.batch", "data.crop_px"}),
                fmt::format("patch_vgg cannot normalise a batch of one picture of {0} pixels{1}: allowed are a "
                            "data.batch of 2 or more, or a data.crop_px of {2} or more",
                            kSmallest, config.discriminator.scales > 1 ? ", as its last scale has it" : "",
                            2 * config.data.crop_px));
}

// What is inherited has been looked at where it was given.
void check_discriminator(const Config& config, Source& source) {
  const GanConfig& gan = config.loss.gan;
  const DiscriminatorConfig& discriminator = config.discriminator;
  if (!gan.on()) return;
  if (gan.kind == "hinge" && gan.label_smoothing > 0) {
    source.report("loss.gan.label_smoothing", "hinge has no labels: allowed with it is 0");
  }
  if ((discriminator.init_iters / discriminator.iters + 1) * discriminator.iters > config.run.steps) {
    source.report(written_one(source, {"discriminator.init_iters", "discriminator.iters", "run.steps"}),
                  fmt::format("the network would not be updated once in run.steps = {}", config.run.steps));
  }
  check_batch_of_discriminator(config, source);
  if (source.has_within("discriminator.optimizer"))
    check_optimizer(discriminator.optimizer, "discriminator.optimizer", source);
  if (!source.has_within("discriminator.schedule") && discriminator.optimizer.lr == config.optimizer.lr) return;
  check_schedule(discriminator.schedule, "discriminator.schedule", discriminator.optimizer.lr,
                 "discriminator.optimizer", config.run.steps, source);
}

void check_validation(const ValidationConfig& validation, Source& source) {
  if (validation.frames.empty()) return;
  for (const auto& [key, given] :
       {std::pair{"script", !validation.script.empty()}, std::pair{"pairs", !validation.pairs.empty()}}) {
    if (!given) continue;
    source.report("validation.frames",
                  fmt::format("cannot be combined with validation.{}: the frames are those of data.{}", key, key));
  }
}

// Measured with the networks that [loss] names, whatever they weigh there.
void check_best_by(const Config& config, Source& source) {
  for (const auto& [name, backbone] :
       {std::pair{"lpips", config.loss.lpips.backbone}, std::pair{"dists", config.loss.dists.backbone}}) {
    if (config.validation.best_by != name || !backbone.empty()) continue;
    source.report(
        "validation.best_by",
        fmt::format("{0} needs its network: loss.{0} = {{ weight = 0, backbone = \"…\" }} measures with it and "
                    "does not train by it",
                    name));
  }
}

void check_args(const ModelConfig& model, Source& source) {
  if (model.args.empty() || find_architecture(model.arch)->takes_args) return;
  source.report("model.args", fmt::format("only for model.arch = \"module\", which is \"{}\"", model.arch));
}

// Images have no neighbours in time.
void check_pairs(const Config& config, Source& source) {
  if (!config.data.pairs.empty() && config.loss.temporal.on()) {
    source.report(written_one(source, {"loss.temporal", "data.pairs"}),
                  fmt::format("loss.temporal is {}, but the images of data.pairs are single pictures: allowed with "
                              "pairs is 0",
                              config.loss.temporal.weight));
  } else if (!config.data.pairs.empty() && sample_frames(config) > 1) {
    source.report(written_one(source, {"discriminator.frames", "data.pairs"}),
                  fmt::format("discriminator.frames is {}, but the images of data.pairs are single pictures: allowed "
                              "with pairs is 1",
                              config.discriminator.frames));
  }
  if (config.data.window == 1) return;
  for (const auto& [key, given] : {std::pair{"data.pairs", !config.data.pairs.empty()},
                                   std::pair{"validation.pairs", !config.validation.pairs.empty()}}) {
    if (!given) continue;
    source.report(key, fmt::format("its images are single pictures, but data.window is {}: allowed with pairs is 1",
                                   config.data.window));
  }
}

}  // namespace

int smallest_for(const WaveletConfig& config) {
  const int taps = config.filter == "haar" ? 2 : config.filter == "db2" ? 4 : 14;
  return (taps - 1) * ((1 << config.levels) - 1) + 1;
}

int sample_frames(const Config& config) {
  return std::max(config.loss.temporal.on() ? 2 : 1, config.loss.gan.on() ? config.discriminator.frames : 1);
}

bool keeps_average(const Config& config) {
  return config.ema.decay > 0 || config.optimizer.name == "schedule_free_adamw";
}

std::string best_measure(const Config& config) {
  if (config.validation.best_by != "auto") return config.validation.best_by;
  if (!config.loss.dists.backbone.empty()) return "dists";
  return config.loss.lpips.backbone.empty() ? "psnr_rgb" : "lpips";
}

void check_rules(const Config& config, Source& source) {
  check_data(config, source);
  check_effective_batch(config, source);
  check_args(config.model, source);
  check_loss(config, source);
  check_optimizer(config.optimizer, "optimizer", source);
  check_schedule(config.schedule, "schedule", config.optimizer.lr, "optimizer", config.run.steps, source);
  check_discriminator(config, source);
  check_validation(config.validation, source);
  check_best_by(config, source);
  check_pairs(config, source);
}

}  // namespace reelgrad
