#include "reelgrad/engine/train_session.h"

#include <fmt/format.h>
#include <torch/utils.h>

#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/base/text.h"
#include "reelgrad/data/loader.h"
#include "reelgrad/engine/guarded.h"
#include "reelgrad/frames/gpu_plane_import.h"
#include "reelgrad/nn/architectures.h"
#include "reelgrad/nn/weights_file.h"
#include "reelgrad/record/run_folder.h"
#include "reelgrad/restore/validation.h"
#include "reelgrad/train/adversary.h"
#include "reelgrad/train/amp.h"
#include "reelgrad/train/network_loss.h"
#include "reelgrad/train/trainer.h"
#include "reelgrad/train/updater.h"

namespace reelgrad {
namespace {

constexpr int kTimedReplays = 200;
constexpr std::uint64_t kDiscriminatorSeed = 1;  // added to run.seed

OpenOptions with_progress(Observer& observer) {
  return {.on_progress = [&observer](const std::string& text) { observer.status(text); }};
}

Script open_script(const ScriptConfig& script, std::optional<CardId> card, Observer& observer) {
  OpenOptions options = with_progress(observer);
  options.card = card;
  options.args = script.args;
  options.cache_bytes = kTrainingCacheBytes;
  return Script::open(script.path, options);
}

ValidationClip validation_clip(const ScriptConfig& script, int scale, torch::Device device, Observer& observer) {
  ClipPair pair = training_pair(open_script(script, card_of(device), observer), scale);
  if (const auto card = frame_target(device)) pair = pair.on_gpu(*card);
  const std::int64_t frames = pair.target.info().frames;
  const std::int64_t end = script.end < 0 ? frames : script.end;
  if (script.start >= end || end > frames) {
    fail_usage(fmt::format("validation.script: {}: frames {} to {} do not lie within its {} frames",
                           script.path.string(), script.start, end, frames));
  }
  return {script.path.filename().string(), std::move(pair), script.start, end};
}

void add_images(std::vector<ValidationClip>& clips, const ImagePairs& images, FrameRange range) {
  for (ValidationClip& clip : image_clips(images, range)) clips.push_back(std::move(clip));
}

void add_pairs(std::vector<ValidationClip>& clips, const PairsConfig& pairs, int scale, Observer& observer) {
  const ImagePairs images = ImagePairs::open(pairs.input, pairs.target, scale, with_progress(observer));
  add_images(clips, images, {0, static_cast<std::int64_t>(images.list().size())});
}

// From scripts and images of its own, or from the frames that training leaves out of its scripts and images; else none.
std::vector<ValidationClip> validation_clips(const Config& config, const std::vector<TrainingClip>& training,
                                             torch::Device device, Observer& observer) {
  std::vector<ValidationClip> clips;
  for (const ScriptConfig& script : config.validation.script) {
    clips.push_back(validation_clip(script, config.model.scale, device, observer));
  }
  for (const PairsConfig& pairs : config.validation.pairs) add_pairs(clips, pairs, config.model.scale, observer);
  if (!clips.empty() || config.validation.frames.empty()) return clips;
  std::set<int> seen;  // a script may have given several spans
  for (const TrainingClip& clip : training) {
    if (!seen.insert(clip.span.script).second) continue;
    const auto range_of = [&](std::int64_t frames) {
      return parse_frame_range(config.validation.frames, frames, "validation.frames");
    };
    if (clip.images) {
      add_images(clips, *clip.images, range_of(static_cast<std::int64_t>(clip.images->list().size())));
      continue;
    }
    const FrameRange range = range_of(clip.pair.target.info().frames);
    clips.push_back({clip.name, clip.pair, range.begin, range.end});
  }
  return clips;
}

void say_frame_paths(const std::vector<TrainingClip>& clips) {
  std::set<int> said;  // a script may have given several spans
  for (const TrainingClip& clip : clips) {
    if (!said.insert(clip.span.script).second) continue;
    for (const Clip& side : {clip.pair.target, clip.pair.input}) log::info(side.describe_frame_path());
  }
}

// A resumed run has its own copy of a user's network, which says what its checkpoints hold.
NetworkSpec with_kept_file(NetworkSpec spec, const std::filesystem::path& run) {
  NetworkSpec kept = with_file_in(run, spec);
  return std::filesystem::exists(network_file(kept)) ? kept : spec;
}

// A network of the user's may restore what training has no samples of.
void require_trainable(const Network& network, const Config& config) {
  const NetworkInfo info = network.info();
  if (info.all_frames) {
    fail_usage(fmt::format("{}: the network restores all frames of its window; training compares the middle one alone",
                           config.model.arch));
  }
  if (info.fixed_px > 0 && info.fixed_px != config.data.crop_px) {
    fail_usage(fmt::format("data.crop_px = {}: the network takes pictures of {}x{} only", config.data.crop_px,
                           info.fixed_px, info.fixed_px));
  }
}

// What comes from a checkpoint does not come from pretrained files, which may be gone by then.
std::shared_ptr<Network> starting_network(const Config& config, const NetworkSpec& spec, const SavedNetworks& saved) {
  torch::manual_seed(config.run.seed);
  std::shared_ptr<Network> network = make_network(spec);
  require_trainable(*network, config);
  if (!config.model.pretrained.empty() && !saved.network) {
    const std::filesystem::path file = find_model_file(config.model.pretrained);
    torch::NoGradGuard no_grad;
    const NamedTensors state = read_weights_logged(file).tensors;
    if (config.model.pretrained_fit == "strict") {
      load_strict(*network, state, file.string());
    } else {
      log::info(fmt::format("{}: {}", file.string(), describe(load_partial(*network, state, file.string()))));
    }
    network->eval();  // what follows from the weights
    network->train();
  }
  return network;
}

// nullptr without loss.gan. Its start is drawn apart from the network's, which is then the same with and without it.
std::shared_ptr<Discriminator> starting_discriminator(const Config& config, const SavedNetworks& saved) {
  if (config.loss.gan.weight == 0) return nullptr;
  std::shared_ptr<Discriminator> discriminator =
      make_discriminator(discriminator_options(config), config.run.seed + kDiscriminatorSeed);
  const std::filesystem::path& pretrained = config.discriminator.pretrained;
  if (pretrained.empty() || saved.discriminator) return discriminator;
  const std::filesystem::path file = find_discriminator_file(pretrained);
  const torch::NoGradGuard no_grad;
  load_strict(*discriminator, read_weights_logged(file).tensors, file.string());
  return discriminator;
}

void say_adversary(const Config& config, const Discriminator& discriminator) {
  std::int64_t parameters = 0;
  for (const torch::Tensor& parameter : discriminator.parameters()) parameters += parameter.numel();
  const std::int64_t first = generator_steps(config).first;
  log::info(fmt::format("against a discriminator: {} with {} parameters, {} loss{}", config.loss.gan.net, parameters,
                        config.loss.gan.kind,
                        first > 0 ? fmt::format("; the first {} steps train it alone", first) : ""));
}

// Passes everything on and remembers the best score, which each checkpoint carries.
class BestRecorder : public Recorder {
 public:
  BestRecorder(Recorder& inner, TrainResult& result) : inner_(inner), result_(result) {}

  void step(const StepRecord& record) override { inner_.step(record); }
  void validation(const ValidationRecord& record) override { inner_.validation(record); }
  void checkpoint(const Snapshot& snapshot) override {
    inner_.checkpoint(snapshot);
    remember(snapshot);
  }
  void remember(const Snapshot& snapshot) {
    result_.step = snapshot.step;
    if (!snapshot.best_score) return;
    result_.best_score = snapshot.best_score;
    result_.best_step = snapshot.best_step;
  }

 private:
  Recorder& inner_;
  TrainResult& result_;
};

TrainProgress to_progress(std::int64_t step, std::int64_t steps, const StepRecord& record) {
  TrainProgress progress;
  progress.step = step;
  progress.steps = steps;
  progress.loss = record.loss;
  progress.losses = record.losses;
  progress.learning_rate = record.learning_rate;
  progress.steps_per_second = record.steps_per_second;
  progress.data_wait_share = record.data_wait_share;
  progress.memory_mb = record.memory_mb;
  if (record.discriminator) {
    progress.discriminator_real = record.discriminator->real;
    progress.discriminator_fake = record.discriminator->fake;
  }
  return progress;
}

// What ends a run early stands in its log too.
template <class Work>
void logged(Work&& work) {
  try {
    std::forward<Work>(work)();
  } catch (...) {
    log::write_to_files(log::Level::error, status_of(std::current_exception()).message);
    throw;
  }
}

}  // namespace

void train_session(const TrainRequest& request, Observer& observer, TrainResult& result) {
  const Config& config = request.config;
  apply_determinism(config.run.deterministic);
  apply_tf32(config.precision.tf32);
  const torch::Device device = resolve_device(config.run.device);

  // All that can be refused is opened before the run folder is touched.
  const Precision precision = resolve_precision(config.precision.amp, device);
  std::vector<TrainingClip> clips = open_training_clips(
      config, [&](const ScriptConfig& script) { return open_script(script, card_of(device), observer); },
      with_progress(observer));
  keep_on_card(clips, device);
  std::vector<ValidationClip> validation = validation_clips(config, clips, device, observer);
  NetworkSpec spec = network_spec(config);
  if (request.mode == RunMode::resume) spec = with_kept_file(std::move(spec), config.run.dir);
  SavedNetworks saved;
  if (request.mode == RunMode::resume) saved = saved_networks(config.run.dir);
  const std::shared_ptr<Network> network = starting_network(config, spec, saved);
  check_parameter_patterns(config.optimizer, *network, "optimizer");
  const std::shared_ptr<Discriminator> discriminator = starting_discriminator(config, saved);
  if (discriminator) {
    check_parameter_patterns(config.discriminator.optimizer, *discriminator, "discriminator.optimizer");
  }
  Loss loss = make_loss(config, precision);
  spec = measured_spec(std::move(spec), *network);
  std::unique_ptr<Validator> validator;
  if (!validation.empty()) {
    auto features = std::make_unique<FeatureMeasures>(config.loss);
    if (features->none()) features.reset();
    validator = make_validator(std::move(validation), spec, config.data.overrides, device, std::move(features));
  }

  RunFolder folder(config, spec, request.mode);
  result.run_folder = folder.path();
  logged([&] {
    std::optional<Snapshot> resumed;
    if (request.mode == RunMode::resume) resumed = folder.resume_point();
    if (resumed && resumed->step == config.run.steps) {
      log::info(
          fmt::format("all {} steps are done already; with a larger run.steps the run would go on", resumed->step));
    }
    BestRecorder recorder(folder, result);
    if (resumed) recorder.remember(*resumed);

    if (device.is_cuda()) say_frame_paths(clips);
    LoaderOptions loading;
    if (prefers_channels_last(device)) loading.layout = torch::MemoryFormat::ChannelsLast;
    TrainingLoader loader(std::move(clips), config, device, resumed ? resumed->step : 0, loading);
    log::info(fmt::format("training {} on {}: {}", spec.arch, device.str(), loader.describe()));
    if (discriminator) say_adversary(config, *discriminator);
    if (config.run.deterministic) {
      log::info(
          "run.deterministic: the same bits on every run, with this card, these versions and this number of threads; "
          "libraries do not choose their fastest kernels (docs/benchmarks.md has what that costs)");
    }
    TrainerHooks hooks;
    hooks.stop_requested = [&observer] { return observer.stop_requested(); };
    hooks.progress = [&](std::int64_t step, const StepRecord& record) {
      observer.train_progress(to_progress(step, config.run.steps, record));
    };
    Trainer trainer(config, network, device, loader, recorder, validator.get(), hooks, discriminator, std::move(loss));
    if (resumed) trainer.restore(*resumed);
    const TrainOutcome outcome = trainer.run(request.stop_at);
    result.step = trainer.step();
    result.interrupted = outcome == TrainOutcome::interrupted;
    log::write_to_files(log::Level::info,
                        fmt::format("{} at step {}", result.interrupted ? "interrupted" : "done", result.step));
    result.stopped_early = outcome == TrainOutcome::stopped_at;
    if (request.time_replay && !result.interrupted) result.replay_seconds = trainer.replay_seconds(kTimedReplays);
  });
}

}  // namespace reelgrad
