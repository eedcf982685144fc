#include "reelgrad/config/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>
#include <vector>

#include "reelgrad/config/architectures.h"

namespace reelgrad {
namespace {

// The key to blame: the first of these that somebody wrote, else the first.
std::string written_one(const Source& source, std::initializer_list<const char*> keys) {
  const auto found = std::ranges::find_if(keys, [&](const char* key) { return source.has(key); });
  return found == keys.end() ? *keys.begin() : *found;
}

void check_data(const DataConfig& data, bool temporal, Source& source) {
  if (data.script.empty() && data.pairs.empty()) {
    source.report("data.script", "missing: the script to train on (or data.pairs: two folders of images)");
  }
  if (data.window % 2 == 0)
    source.report("data.window", fmt::format("{} is even, allowed: an odd number", data.window));
  const int frames = data.window + (temporal ? 1 : 0);
  const int span = (frames - 1) * data.frame_step + 1;
  if (data.segment_frames < span) {
    source.report(
        written_one(source, {"data.segment_frames", "data.window", "data.frame_step"}),
        fmt::format("a window of {} frames{}, {} apart, spans {}, which is more than segment_frames = {}", frames,
                    temporal ? " (one more for loss.temporal)" : "", data.frame_step, span, data.segment_frames));
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

void check_size_for(const char* key, double weight, int smallest, const Config& config, Source& source) {
  const int size = config.data.crop_px * config.model.scale;
  if (weight == 0 || size >= smallest) return;
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
  if (loss.l1 + loss.mse + loss.charbonnier + loss.huber == 0) {
    source.report(key, "only for l1, mse, charbonnier and huber, which all weigh 0");
  }
}

void check_loss(const Config& config, Source& source) {
  const LossConfig& loss = config.loss;
  const double sum = loss.l1 + loss.mse + loss.charbonnier + loss.huber + loss.ssim + loss.ms_ssim + loss.fft +
                     loss.edge + loss.temporal + loss.gan.weight;
  if (sum == 0) source.report("loss.charbonnier", "all weights of the loss are 0: nothing would be trained");
  if (sum > 0 && sum == loss.temporal) {
    source.report("loss.temporal",
                  "alone it does not see what is wrong in both frames alike: give another term a weight too, as "
                  "loss.charbonnier = 1");
  }
  check_size_for("loss.ssim", loss.ssim, kSmallestForSsim, config, source);
  check_size_for("loss.ms_ssim", loss.ms_ssim, kSmallestForMsSsim, config, source);
  check_plane_weights(config, source);
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
    source.warn(section + ".milestones",
                fmt::format("{} {} never reached: the run ends at run.steps = {}", fmt::join(late, ", "),
                            late.size() == 1 ? "is" : "are", steps));
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
    source.report(section + ".milestones",
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

// What is inherited has been looked at where it was given.
void check_discriminator(const Config& config, Source& source) {
  const GanConfig& gan = config.loss.gan;
  const DiscriminatorConfig& discriminator = config.discriminator;
  if (gan.weight == 0) return;
  if (gan.kind == "hinge" && gan.label_smoothing > 0) {
    source.report("loss.gan.label_smoothing", "hinge has no labels: allowed with it is 0");
  }
  if (discriminator.frames == 2 && config.loss.temporal == 0) {
    source.report("discriminator.frames", "samples have two frames with loss.temporal only, which is 0");
  }
  if ((discriminator.init_iters / discriminator.iters + 1) * discriminator.iters > config.run.steps) {
    source.report(written_one(source, {"discriminator.init_iters", "discriminator.iters", "run.steps"}),
                  fmt::format("the network would not be updated once in run.steps = {}", config.run.steps));
  }
  if (source.has("discriminator.optimizer")) check_optimizer(discriminator.optimizer, "discriminator.optimizer", source);
  if (!source.has("discriminator.schedule") && discriminator.optimizer.lr == config.optimizer.lr) return;
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

void check_args(const ModelConfig& model, Source& source) {
  if (model.args.empty() || find_architecture(model.arch)->takes_args) return;
  source.report("model.args", fmt::format("only for model.arch = \"module\", which is \"{}\"", model.arch));
}

// Images have no neighbours in time.
void check_pairs(const Config& config, Source& source) {
  if (!config.data.pairs.empty() && config.loss.temporal > 0) {
    source.report(written_one(source, {"loss.temporal", "data.pairs"}),
                  fmt::format("loss.temporal is {}, but the images of data.pairs are single pictures: allowed with "
                              "pairs is 0",
                              config.loss.temporal));
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

void check_rules(const Config& config, Source& source) {
  check_data(config.data, config.loss.temporal > 0, source);
  check_effective_batch(config, source);
  check_args(config.model, source);
  check_loss(config, source);
  check_optimizer(config.optimizer, "optimizer", source);
  check_schedule(config.schedule, "schedule", config.optimizer.lr, "optimizer", config.run.steps, source);
  check_discriminator(config, source);
  check_validation(config.validation, source);
  check_pairs(config, source);
}

}  // namespace reelgrad
