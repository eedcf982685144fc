#include "reelgrad/train/finite_watch.h"

#include <fmt/format.h>

#include <cmath>

#include "reelgrad/base/error.h"
#include "reelgrad/nn/weights.h"
#include "reelgrad/train/not_finite.h"

namespace reelgrad {
namespace {

// The first parameter with values that are not finite, in words; empty: none.
std::string bad_weights(const torch::nn::Module& network) {
  try {
    require_finite(state_dict(network), "now the weights");
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

std::string first_bad_tensor(const TrainingParts& parts, std::int64_t done_steps) {
  parts.steps.give_back();  // a graph holds as much memory as a step needs
  const MicroBatches micro(parts.samples(), parts.steps.plan().parts);
  const StepUnderTest under_test{
      parts.network,
      [&](const Batch& batch) { return parts.loss.network_input(batch); },
      [&](const std::function<void()>& work) { parts.loss.with_autocast(work); },
      [&](const Batch& batch) { return parts.loss(batch); },
      parts.loss.names(),
      [&](const torch::Tensor& value) { return parts.generator.updater.scaled(value); },
  };
  for (int i = 0; i < micro.parts(); ++i) {
    parts.ops.drop_gradients();
    const Batch batch = parts.batches.next(done_steps - 1, micro.first(i), micro.count(i));
    const std::string found = first_not_finite(under_test, batch, micro.first(i));
    if (!found.empty()) return "the first that is not finite is " + found;
  }
  return {};
}

std::string remedy(const TrainingParts& parts, const TrainedNetwork& trained) {
  const char* section = parts.is_opponent(trained) ? "discriminator.optimizer" : "optimizer";
  if (parts.precision == Precision::fp32) return fmt::format("Try a lower {0}.lr, or {0}.clip_norm = 1", section);
  const char* other = trained.scales_loss() ? "\"bf16\" or \"off\"" : "\"off\"";
  return fmt::format("Try precision.amp = {1}, a lower {0}.lr, or {0}.clip_norm = 1", section, other);
}

// Names the tensor with which the last step went wrong. A discriminator goes wrong by its own weights, or by what the
// generator made.
[[noreturn]] void fail_not_finite(const TrainingParts& parts, const TrainedNetwork& trained, const std::string& what,
                                  std::int64_t done_steps) {
  std::string where = bad_weights(trained.network());
  if (where.empty()) where = first_bad_tensor(parts, done_steps);
  if (where.empty()) where = "run once more it is finite";
  fail(fmt::format("{}; {}. Checkpoints saved before are untouched. {}", what, where, remedy(parts, trained)));
}

}  // namespace

void check_losses(const TrainingParts& parts, const TrainedNetwork& trained, const LossMeter::Reading& reading,
                  std::int64_t last_step, std::int64_t done_steps) {
  if (trained.scales_loss() || reading.first_bad < 0) return;
  const double value = reading.first_bad_value;
  const UpdateSteps updates = parts.is_opponent(trained) ? UpdateSteps{} : generator_steps(parts.config);
  const std::int64_t bad = updates.before(last_step) - reading.steps + reading.first_bad;  // of the updates
  const char* what = std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  fail_not_finite(parts, trained,
                  fmt::format("step {}: the {}loss is {}", updates.first + bad * updates.every + 1,
                              parts.is_opponent(trained) ? "discriminator's " : "", what),
                  done_steps);
}

// Where both have one loss scale, the one that skips is to blame.
void watch_scales(const TrainingParts& parts, std::int64_t done_steps) {
  const TrainedNetwork* worst = nullptr;
  std::string what;
  for (TrainedNetwork* trained : {&parts.generator, parts.opponent}) {
    if (trained == nullptr) continue;
    const std::string wrong = trained->watch_scale(done_steps);
    if (wrong.empty()) continue;
    if (worst != nullptr && worst->counters.skipped_in_a_row >= trained->counters.skipped_in_a_row) continue;
    worst = trained;
    what = wrong;
  }
  if (worst == nullptr) return;
  const char* whose = parts.is_opponent(*worst) ? "the discriminator: " : "";
  fail_not_finite(parts, *worst, fmt::format("step {}: {}{}", done_steps, whose, what), done_steps);
}

}  // namespace reelgrad
