#include "reelgrad/train/trained_network.h"

#include <fmt/format.h>

#include <utility>

namespace reelgrad {
namespace {

constexpr std::int64_t kScaleCheckEvery = 5;   // steps
constexpr std::int64_t kMostSkipsInARow = 20;  // more, and nothing is learned any more
constexpr std::int64_t kSkipsInDoubt = 4;      // from here on each step is looked at
constexpr double kSmallestScale = 1;

std::string what_is_wrong(const UpdateCounters& counters, std::int64_t step) {
  if (counters.skipped_in_a_row <= kMostSkipsInARow && counters.scale >= kSmallestScale) return {};
  return fmt::format("{} steps in a row had gradients that are not finite (loss scale {}, {} skipped of {})",
                     counters.skipped_in_a_row, counters.scale, counters.skipped, step);
}

}  // namespace

std::string TrainedNetwork::watch_scale(std::int64_t step) {
  if (!scales_) return {};
  std::string wrong;
  const bool in_doubt = counters.skipped_in_a_row >= kSkipsInDoubt;
  if (counting_ && (in_doubt || counting_->ready())) {
    counters = Updater::read(std::exchange(counting_, std::nullopt)->wait());
    wrong = what_is_wrong(counters, step);
  }
  if (!counting_ && (in_doubt || step >= counting_step_ + kScaleCheckEvery)) {
    counting_.emplace(updater.counters());
    counting_step_ = step;
  }
  return wrong;
}

}  // namespace reelgrad
