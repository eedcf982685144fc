#include "reelgrad/train/trainer.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <limits>
#include <utility>

#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/train/adversary.h"
#include "reelgrad/train/amp.h"
#include "reelgrad/train/balance.h"
#include "reelgrad/train/finite_watch.h"
#include "reelgrad/train/fitted_steps.h"
#include "reelgrad/train/meter.h"
#include "reelgrad/train/network_loss.h"
#include "reelgrad/train/out_of_memory.h"
#include "reelgrad/train/read_back.h"
#include "reelgrad/train/schedule.h"
#include "reelgrad/train/step.h"
#include "reelgrad/train/step_clock.h"
#include "reelgrad/train/trained_network.h"
#include "reelgrad/train/training_state.h"
#include "reelgrad/train/updater.h"

namespace reelgrad {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kProgressInterval = std::chrono::milliseconds(200);
constexpr std::size_t kMostPending = 16;  // records on their way from the card

std::shared_ptr<Network> placed(std::shared_ptr<Network> network, torch::Device device) {
  network->to(device);
  if (prefers_channels_last(device)) to_channels_last(*network);
  network->train();
  return network;
}

std::int64_t peak_memory_mb(torch::Device device) {
  if (!device.is_cuda()) return 0;
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
  return stats.allocated_bytes[0].peak >> 20;
}

// Steps run on a stream of their own: the default one cannot be captured in a graph.
class OwnStream {
 public:
  explicit OwnStream(torch::Device device) {
    if (!device.is_cuda()) return;
    c10::cuda::getCurrentCUDAStream(device.index()).synchronize();  // the network's weights were put there by it
    guard_.emplace(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index()));
  }

 private:
  std::optional<c10::cuda::CUDAStreamGuard> guard_;
};

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
  int samples;  // a step

  UpdateSteps generator_steps;
  Schedule schedule;  // the generator's
  std::optional<Adversary> adversary;
  NetworkLoss loss;
  TrainedNetwork generator;
  std::optional<TrainedNetwork> opponent;  // the discriminator
  BalanceWatch balance;
  StepOps ops;
  FittedSteps steps;

  std::int64_t step = 0;
  std::int64_t saved_at = -1;  // step of the last checkpoint
  std::optional<double> best_score;
  std::int64_t best_step = 0;
  bool validation_due = false;  // of the step done last: a stop cut it short
  StepRecord latest;

  // On its way from the card.
  struct Reading {
    explicit Reading(const TrainedNetwork& of) : values(of.meter.state()), counters(of.updater.counters()) {}
    ReadBack values, counters;
    bool ready() const { return values.ready() && counters.ready(); }
  };
  struct Pending {
    StepRecord record;
    Reading generator;
    std::optional<Reading> opponent;
    bool ready() const { return generator.ready() && (!opponent || opponent->ready()); }
  };
  std::deque<Pending> pending;  // records

  StepClock clock;
  std::int64_t clock_step = 0;  // `step` when the clock was restarted
  Clock::time_point shown_at{};

  Impl(const Config& config, std::shared_ptr<Network> unplaced, torch::Device device, BatchSource& batches,
       Recorder& recorder, Validator* validator, TrainerHooks hooks, std::shared_ptr<Discriminator> discriminator,
       std::optional<Loss> terms)
      : config(config),
        device(device),
        precision(resolve_precision(config.precision.amp, device)),
        network(placed(std::move(unplaced), device)),
        batches(batches),
        recorder(recorder),
        validator(validator),
        hooks(std::move(hooks)),
        samples(config.data.batch * config.optimizer.accumulate),
        generator_steps(reelgrad::generator_steps(config)),
        schedule(config.schedule, config.optimizer.lr, config.run.steps, generator_steps),
        adversary(make_adversary(std::move(discriminator))),
        loss(config, *network, precision, adversary ? &*adversary : nullptr, std::move(terms)),
        generator(*network, updater_options(), 1 + std::ssize(loss.names()), device),
        balance(config.discriminator.patience),
        ops(phases(), samples, shares_loss_scale()),
        steps(this->config, *network, loss, ops, batches, device) {
    loss.set_done_steps(
        (opponent ? *opponent : generator).updater.done_steps());  // steps may leave the generator alone
    loss.set_average(generator.updater);
    latest.loss = std::numeric_limits<double>::quiet_NaN();
  }

  std::optional<Adversary> make_adversary(std::shared_ptr<Discriminator> discriminator) const {
    if (config.loss.gan.weight == 0) return std::nullopt;
    TORCH_CHECK(discriminator != nullptr, "loss.gan needs a discriminator");
    return Adversary(config, std::move(discriminator), device, precision);
  }

  Updater::Options updater_options() const {
    return {.optimizer = config.optimizer,
            .schedule = config.schedule,
            .ema = config.ema,
            .steps = config.run.steps,
            .updates = generator_steps,
            .gradient_norms = adversary.has_value(),
            .loss_scaling = precision == Precision::fp16};
  }

  Updater::Options opponent_options() const {
    return {.optimizer = config.discriminator.optimizer,
            .section = "discriminator.optimizer",
            .schedule = config.discriminator.schedule,
            .ema = {.decay = 0},
            .steps = config.run.steps,
            .gradient_norms = true,
            .loss_scaling = precision == Precision::fp16};
  }

  bool shares_loss_scale() const {
    return adversary && precision == Precision::fp16 && config.discriminator.scaler == "shared";
  }

  std::vector<Phase> phases() {
    std::vector<Phase> all{
        {[this](const Batch& batch, const Backward& backward) { return loss.add_gradients(batch, backward); },
         network.get(), &generator.updater, &generator.meter}};
    if (!adversary) return all;
    all.front().is_due = [this](std::int64_t at) { return generator_steps.contains(at); };
    all.front().instead = [this](const Batch& batch) { loss.predict(batch); };
    opponent.emplace(adversary->network(), opponent_options(),
                     1 + std::ssize(adversary->term_names()) + Adversary::kMeasures, device);
    all.push_back({[this](const Batch& batch, const Backward& backward) {
                     return adversary->add_gradients(loss.target(batch), backward);
                   },
                   &adversary->network(), &opponent->updater, &opponent->meter});
    return all;
  }

  TrainingParts parts() {
    return {.config = config,
            .device = device,
            .precision = precision,
            .network = *network,
            .loss = loss,
            .generator = generator,
            .adversary = adversary ? &*adversary : nullptr,
            .opponent = opponent ? &*opponent : nullptr,
            .ops = ops,
            .steps = steps,
            .batches = batches};
  }

  // --- The loop ---

  TrainOutcome run(std::optional<std::int64_t> stop_at) {
    const OwnStream stream(device);
    const std::int64_t end = std::min(stop_at.value_or(config.run.steps), config.run.steps);
    const MemoryLimit limit(device, config.memory.reserve_mb);
    if (step == 0) steps.choose_checkpointing(step);
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
      run_step();
      ++step;
      watch_scales(parts(), step);
      if (is_due(config.run.log_every)) begin_record();
      const bool improved = validator != nullptr && is_due(config.validation.every) && validate();
      if (improved || validation_due || step == end || is_due(config.checkpoint.every)) save();
      if (validation_due) return TrainOutcome::interrupted;
      while (!pending.empty() && pending.front().ready()) end_record();
      show_progress();
    }
    return step == config.run.steps ? TrainOutcome::finished : TrainOutcome::stopped_at;
  }

  bool is_due(std::int64_t every) const { return step % every == 0 || step == config.run.steps; }

  // A frame or memory that cannot be had ends the run, but not what it has learned: --resume goes on from there.
  void run_step() {
    try {
      steps.run(step);
    } catch (const Error& error) {
      const bool as_before = error.kind() == ErrorKind::failed || error.kind() == ErrorKind::out_of_memory;
      if (step == 0 || !as_before || !saved_within_memory()) throw;
      throw Error(error.kind(),
                  fmt::format("{}\nA checkpoint of step {} was saved: --resume goes on from it", error.what(), step));
    } catch (const c10::Error& error) {
      const std::string text = first_line(error);
      if (text.find("deterministic implementation") == std::string::npos) throw;
      fail_usage(fmt::format("run.deterministic: this network cannot be trained so: {}", text));
    }
  }

  // Where memory ran out, it may not suffice for saving either.
  bool saved_within_memory() {
    try {
      save();
      return true;
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error)) throw;
      return false;
    }
  }

  // --- What is read back ---

  void begin_record() {
    if (pending.size() == kMostPending) end_record();
    StepRecord record{.step = step,
                      .steps_per_second = steps_per_second(),
                      .data_wait_share = std::min(1.0, batches.take_wait_seconds() / clock.seconds()),
                      .memory_mb = peak_memory_mb(device)};
    pending.push_back({std::move(record), Reading(generator), std::nullopt});
    clear(generator);
    if (opponent) {
      pending.back().opponent.emplace(*opponent);
      clear(*opponent);
    }
    restart_clock();
    if (device.is_cpu()) end_record();
  }

  static void clear(TrainedNetwork& trained) {
    trained.meter.clear();
    trained.updater.clear_norms();
  }

  void end_record() {
    const Pending done = std::move(pending.front());
    pending.pop_front();
    const LossMeter::Reading reading = read(generator, done.generator, done.record.step);
    latest = done.record;
    latest.loss = reading.means.front();
    put_terms(latest.losses, loss.names(), reading);
    latest.learning_rate = generator.counters.learning_rate;
    latest.skipped = generator.counters.skipped;
    if (done.opponent) latest.discriminator = opponent_record(read(*opponent, *done.opponent, done.record.step));
    recorder.step(latest);
    if (latest.discriminator) watch_balance(*latest.discriminator);
  }

  LossMeter::Reading read(TrainedNetwork& trained, const Reading& done, std::int64_t last_step) {
    const LossMeter::Reading reading = LossMeter::read(done.values.wait());
    trained.counters = Updater::read(done.counters.wait());
    check_losses(parts(), trained, reading, last_step, step);
    return reading;
  }

  static void put_terms(std::vector<std::pair<std::string, double>>& losses, const std::vector<std::string>& names,
                        const LossMeter::Reading& reading) {
    for (std::size_t i = 0; names.size() > 1 && i < names.size(); ++i)
      losses.emplace_back(names[i], reading.means[i + 1]);
  }

  AdversarialRecord opponent_record(const LossMeter::Reading& reading) const {
    AdversarialRecord record{.loss = reading.means.front(),
                             .gradient_norm = opponent->counters.gradient_norm,
                             .generator_gradient_norm = generator.counters.gradient_norm,
                             .learning_rate = opponent->counters.learning_rate,
                             .skipped = opponent->counters.skipped};
    put_terms(record.losses, adversary->term_names(), reading);
    const double* measures = reading.means.data() + 1 + adversary->term_names().size();
    record.real = measures[Adversary::kReal];
    record.fake = measures[Adversary::kFake];
    record.right = measures[Adversary::kRight];
    return record;
  }

  void watch_balance(const AdversarialRecord& record) {
    const auto warning = balance.add(latest.step, {.real = record.real,
                                                   .fake = record.fake,
                                                   .right = record.right,
                                                   .generator_gradient_norm = record.generator_gradient_norm});
    if (warning) log::warning(fmt::format("step {}: {}", latest.step, *warning));
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
    latest.learning_rate = schedule.at(std::max<std::int64_t>(0, generator_steps.before(step) - 1 - latest.skipped));
    if (step > clock_step) latest.steps_per_second = steps_per_second();
    // Reading a card's loss would make it wait: between records the last record's stands.
    const double last = device.is_cpu() ? LossMeter::read(generator.meter.state()).last_value : NAN;
    if (std::isfinite(last)) {
      latest.loss = last;
      latest.losses.clear();  // they are of the last record
    }
    hooks.progress(step, latest);
  }

  // --- Validation and checkpoints ---

  // When memory runs out beside the steps' own, that is given back, and `work` done again.
  template <class Work>
  auto with_room(const Work& work) {
    try {
      return work();
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error, device)) throw;
    }
    steps.give_back();
    return work();
  }

  // True when this is the best score so far. A stop while it runs leaves validation_due.
  bool validate() {
    while (!pending.empty()) end_record();
    clock.pause();
    std::optional<ValidationRecord> result = with_room([&] {
      const Updater::EvaluationWeights weights(generator.updater);
      return validator->validate(*network, step, hooks.stop_requested);
    });
    validation_due = !result;
    if (result) {
      result->best_by = best_measure(config);
      recorder.validation(*result);
    }
    clock.resume();
    if (!result) return false;
    if (std::isnan(result->score()) || (best_score && result->score() <= *best_score)) return false;
    best_score = result->score();
    best_step = step;
    return true;
  }

  void save() {
    while (!pending.empty()) end_record();
    if (step == saved_at || step == 0) return;
    clock.pause();
    recorder.checkpoint(with_room([&] { return snapshot(); }));
    saved_at = step;
    clock.resume();
  }

  Snapshot snapshot() {
    Snapshot snapshot{.step = step, .best_score = best_score, .best_step = best_step, .validation_due = validation_due};
    put_training_state(snapshot, parts());
    return snapshot;
  }

  void restore(const Snapshot& snapshot) {
    restore_training_state(snapshot, parts());
    step = snapshot.step;
    validation_due = snapshot.validation_due && validator != nullptr;  // a run may go on without validation
    saved_at = validation_due ? -1 : snapshot.step;                    // written once more, with its score
    best_score = snapshot.best_score;
    best_step = snapshot.best_step;
  }
};

Trainer::Trainer(const Config& config, std::shared_ptr<Network> network, torch::Device device, BatchSource& batches,
                 Recorder& recorder, Validator* validator, TrainerHooks hooks,
                 std::shared_ptr<Discriminator> discriminator, std::optional<Loss> loss)
    : impl_(std::make_unique<Impl>(config, std::move(network), device, batches, recorder, validator, std::move(hooks),
                                   std::move(discriminator), std::move(loss))) {}

Trainer::~Trainer() = default;

void Trainer::restore(const Snapshot& snapshot) {
  impl_->restore(snapshot);
}

TrainOutcome Trainer::run(std::optional<std::int64_t> stop_at) {
  return impl_->run(stop_at);
}

std::optional<double> Trainer::replay_seconds(int times) {
  const OwnStream stream(impl_->device);
  return impl_->steps.replay_seconds(times);
}

std::int64_t Trainer::step() const {
  return impl_->step;
}

}  // namespace reelgrad
