#include "reelgrad/train/trainer.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>

#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/nn/weights.h"
#include "reelgrad/train/amp.h"
#include "reelgrad/train/meter.h"
#include "reelgrad/train/schedule.h"
#include "reelgrad/train/snapshot_state.h"
#include "reelgrad/train/step.h"
#include "reelgrad/train/step_clock.h"
#include "reelgrad/train/updater.h"

namespace reelgrad {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kProgressInterval = std::chrono::milliseconds(200);
constexpr std::int64_t kScalerCheckEvery = 5;  // steps
constexpr std::int64_t kMostSkipsInARow = 20;  // more, and nothing is learned any more
constexpr double kSmallestScale = 1;

std::shared_ptr<Network> placed(std::shared_ptr<Network> network, torch::Device device) {
  network->to(device);
  if (prefers_channels_last(device)) to_channels_last(*network);
  network->train();
  return network;
}

torch::Generator default_generator(torch::Device device) {
  return at::globalContext().defaultGenerator(device);
}

// The first parameter with values that are not finite, or a sentence saying that all are.
std::string describe_weights(const torch::nn::Module& network) {
  try {
    require_finite(state_dict(network), "the weights");
  } catch (const Error& error) {
    return error.what();
  }
  return "the weights are finite";
}

std::int64_t peak_memory_mb(torch::Device device) {
  if (!device.is_cuda()) return 0;
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
  return stats.allocated_bytes[0].peak >> 20;
}

}  // namespace

struct Trainer::Impl {
  Config config;
  torch::Device device;
  Precision precision;
  std::shared_ptr<Network> network;
  BatchSource& batches;
  Recorder& recorder;
  Validator* validator;
  TrainerHooks hooks;

  Schedule schedule;
  Updater updater;
  EagerStep step_op;
  LossMeter meter;

  std::int64_t step = 0;
  std::int64_t saved_at = -1;  // step of the last checkpoint
  std::optional<double> best_score;
  std::int64_t best_step = 0;
  bool validation_due = false;  // of the step done last: a stop cut it short
  StepRecord latest;

  StepClock clock;
  std::int64_t clock_step = 0;  // `step` when the clock was restarted
  Clock::time_point shown_at{};

  Impl(const Config& config, std::shared_ptr<Network> unplaced, torch::Device device, BatchSource& batches,
       Recorder& recorder, Validator* validator, TrainerHooks hooks)
      : config(config),
        device(device),
        precision(resolve_precision(config.precision.amp, device)),
        network(placed(std::move(unplaced), device)),
        batches(batches),
        recorder(recorder),
        validator(validator),
        hooks(std::move(hooks)),
        schedule(config.schedule, config.optimizer.lr, config.run.steps),
        updater({.optimizer = config.optimizer,
                 .schedule = config.schedule,
                 .ema = config.ema,
                 .steps = config.run.steps,
                 .loss_scaling = scales_loss()},
                *network),
        step_op(config, precision, prefers_channels_last(device), *network, updater),
        meter(config.run.log_every, device) {
    latest.loss = std::numeric_limits<double>::quiet_NaN();
  }

  bool scales_loss() const { return precision == Precision::fp16; }

  UpdateCounters counters() const { return Updater::read(updater.counters().cpu()); }

  // --- The loop ---

  TrainOutcome run(std::optional<std::int64_t> stop_at) {
    const std::int64_t end = std::min(stop_at.value_or(config.run.steps), config.run.steps);
    restart_clock();
    if (validation_due) {
      validate();
      if (validation_due) return TrainOutcome::interrupted;
      save();
    }
    while (step < end) {
      if (hooks.stop_requested && hooks.stop_requested()) {
        save();
        return TrainOutcome::interrupted;
      }
      meter.add(step_op.run([&](int first, int count) { return next_batch(first, count); }));
      ++step;
      if (scales_loss() && step % kScalerCheckEvery == 0) check_scaler();
      if (is_due(config.run.log_every)) record();
      const bool improved = validator != nullptr && is_due(config.validation.every) && validate();
      if (improved || validation_due || step == end || is_due(config.checkpoint.every)) save();
      if (validation_due) return TrainOutcome::interrupted;
      show_progress();
    }
    return step == config.run.steps ? TrainOutcome::finished : TrainOutcome::stopped_at;
  }

  // A frame that cannot be had ends the run, but not what it has learned: --resume goes on from there.
  Batch next_batch(int first, int count) {
    try {
      return batches.next(step, first, count);
    } catch (const Error& error) {
      if (step == 0 || error.kind() == ErrorKind::out_of_memory) throw;
      save();
      throw Error(error.kind(),
                  fmt::format("{}\nA checkpoint of step {} was saved: --resume goes on from it", error.what(), step));
    }
  }

  bool is_due(std::int64_t every) const { return step % every == 0 || step == config.run.steps; }

  // --- What is read back ---

  void record() {
    const std::vector<double> losses = meter.read();
    const std::int64_t skipped = scales_loss() ? counters().skipped : 0;
    latest = StepRecord{.step = step,
                        .loss = mean_loss(losses),
                        .learning_rate = schedule.at(std::max<std::int64_t>(0, step - 1 - skipped)),
                        .steps_per_second = steps_per_second(),
                        .data_wait_share = std::min(1.0, batches.take_wait_seconds() / clock.seconds()),
                        .skipped = skipped,
                        .memory_mb = peak_memory_mb(device)};
    recorder.step(latest);
    meter.clear();
    restart_clock();
  }

  // A scaler skips a step whose loss is not finite, and those don't count. Without one, the first such step ends the
  // run.
  double mean_loss(const std::vector<double>& losses) const {
    std::vector<double> finite;
    for (std::size_t i = 0; i < losses.size(); ++i) {
      if (std::isfinite(losses[i])) {
        finite.push_back(losses[i]);
      } else if (!scales_loss()) {
        const auto at = step - static_cast<std::int64_t>(losses.size() - i) + 1;
        fail(fmt::format("step {}: the loss is {}; now {}. Checkpoints saved before are untouched. {}", at, losses[i],
                         describe_weights(*network), remedy()));
      }
    }
    if (finite.empty()) return std::numeric_limits<double>::quiet_NaN();
    return std::accumulate(finite.begin(), finite.end(), 0.0) / static_cast<double>(finite.size());
  }

  std::string remedy() const {
    return precision == Precision::fp32
               ? "Try a lower optimizer.lr, or optimizer.clip_norm = 1"
               : "Try precision.amp = \"off\", a lower optimizer.lr, or optimizer.clip_norm = 1";
  }

  void check_scaler() const {
    const UpdateCounters counters = this->counters();
    if (counters.skipped_in_a_row <= kMostSkipsInARow && counters.scale >= kSmallestScale) return;
    fail(
        fmt::format("step {}: {} steps in a row had gradients that are not finite (loss scale {}, {} skipped of {}); "
                    "the last loss is {}. Checkpoints saved before are untouched. Try precision.amp = \"bf16\" or "
                    "\"off\", or a lower optimizer.lr",
                    step, counters.skipped_in_a_row, counters.scale, counters.skipped, step, meter.last()));
  }

  double steps_per_second() const {
    const double seconds = clock.seconds();
    return seconds > 0 ? static_cast<double>(step - clock_step) / seconds : 0;
  }

  void restart_clock() {
    clock.restart();
    clock_step = step;
  }

  void show_progress() {
    if (!hooks.progress || Clock::now() - shown_at < kProgressInterval) return;
    shown_at = Clock::now();
    latest.step = step;
    latest.learning_rate = schedule.at(std::max<std::int64_t>(0, step - 1 - latest.skipped));
    if (step > clock_step) latest.steps_per_second = steps_per_second();
    // Reading a card's loss would make it wait: between records the last record's stands.
    if (const double loss = device.is_cpu() ? meter.last() : NAN; std::isfinite(loss)) latest.loss = loss;
    hooks.progress(step, latest);
  }

  // --- Validation and checkpoints ---

  // True when this is the best score so far. A stop while it runs leaves validation_due.
  bool validate() {
    clock.pause();
    std::optional<ValidationRecord> result;
    {
      const Updater::EvaluationWeights averages(updater);
      result = validator->validate(*network, step, hooks.stop_requested);
    }
    clock.resume();
    validation_due = !result;
    if (!result) return false;
    result->step = step;
    recorder.validation(*result);
    if (std::isnan(result->score()) || (best_score && result->score() <= *best_score)) return false;
    best_score = result->score();
    best_step = step;
    return true;
  }

  void save() {
    if (step == saved_at || step == 0) return;
    clock.pause();
    recorder.checkpoint(snapshot());
    saved_at = step;
    clock.resume();
  }

  Snapshot snapshot() const {
    Snapshot snapshot{.step = step, .best_score = best_score, .best_step = best_step, .validation_due = validation_due};
    put_state(snapshot.model, "", updater.evaluation_weights());
    put_state(snapshot.training, "network.", state_dict(*network));
    put_state(snapshot.training, "", updater.state());
    const std::string what =
        fmt::format("step {}: the checkpoint is not saved, those saved before are untouched", step);
    require_finite(snapshot.model, what);
    require_finite(snapshot.training, what);
    put_state(snapshot.training, "meter.losses", meter.state());
    put_state(snapshot.training, "generator.cpu", default_generator(torch::kCPU).get_state());
    if (device.is_cuda()) put_state(snapshot.training, "generator.cuda", default_generator(device).get_state());
    return snapshot;
  }

  void restore(const Snapshot& snapshot) {
    const StateReader training(snapshot.training);
    load_strict(*network, training.below("network."), fmt::format("checkpoint of step {}", snapshot.step));
    updater.load_state(with_average(snapshot));
    step = snapshot.step;
    if (const torch::Tensor* losses = training.find("meter.losses")) meter.load_state(*losses);
    restore_generator(training, "generator.cpu", torch::kCPU);
    if (device.is_cuda()) restore_generator(training, "generator.cuda", device);
    validation_due = snapshot.validation_due && validator != nullptr;  // a run may go on without validation
    saved_at = validation_due ? -1 : snapshot.step;                    // written once more, with its score
    best_score = snapshot.best_score;
    best_step = snapshot.best_step;
  }

  // Older checkpoints hold the average as the model alone.
  static NamedTensors with_average(const Snapshot& snapshot) {
    NamedTensors state = snapshot.training;
    if (!StateReader(state).below("ema.").empty()) return state;
    for (const auto& [name, tensor] : snapshot.model) state.emplace_back("ema." + name, tensor);
    return state;
  }

  void restore_generator(const StateReader& training, const std::string& name, torch::Device of) {
    const torch::Tensor* state = training.find(name);
    if (state == nullptr) {
      log::warning(fmt::format("the checkpoint has no state of the {} generator: the run is not repeated bit for bit",
                               of.str()));
      return;
    }
    default_generator(of).set_state(*state);
  }
};

Trainer::Trainer(const Config& config, std::shared_ptr<Network> network, torch::Device device, BatchSource& batches,
                 Recorder& recorder, Validator* validator, TrainerHooks hooks)
    : impl_(
          std::make_unique<Impl>(config, std::move(network), device, batches, recorder, validator, std::move(hooks))) {}

Trainer::~Trainer() = default;

void Trainer::restore(const Snapshot& snapshot) {
  impl_->restore(snapshot);
}

TrainOutcome Trainer::run(std::optional<std::int64_t> stop_at) {
  try {
    return impl_->run(stop_at);
  } catch (const c10::OutOfMemoryError& error) {
    const std::string text = error.what_without_backtrace();
    throw Error(
        ErrorKind::out_of_memory,
        fmt::format("step {}: out of memory on {}: {}\nSmallest change first: a smaller data.batch with as much "
                    "more optimizer.accumulate, a smaller data.crop_px, a smaller network",
                    impl_->step + 1, impl_->device.str(), text.substr(0, text.find('\n'))));
  }
}

std::int64_t Trainer::step() const {
  return impl_->step;
}

}  // namespace reelgrad
