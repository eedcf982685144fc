#include "reelgrad/train/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "reelgrad/base/error.h"

namespace reelgrad {

Schedule::Schedule(const ScheduleConfig& config, double lr, std::int64_t steps)
    : config_(config), lr_(lr), steps_(steps) {
  if (config.name != "constant" && config.name != "multistep" && config.name != "cosine") {
    fail_usage(fmt::format("schedule.name: unknown \"{}\", allowed: constant, multistep, cosine", config.name));
  }
}

double Schedule::at(std::int64_t done) const {
  const double rate = without_warmup(done);
  if (done >= config_.warmup_steps) return rate;
  return rate * static_cast<double>(done + 1) / static_cast<double>(config_.warmup_steps);
}

double Schedule::without_warmup(std::int64_t done) const {
  if (config_.name == "multistep") {
    const auto passed = std::ranges::count_if(config_.milestones, [&](std::int64_t step) { return step <= done; });
    return lr_ * std::pow(config_.gamma, static_cast<double>(passed));
  }
  if (config_.name == "cosine") {
    const std::int64_t length = std::max<std::int64_t>(1, steps_ - config_.warmup_steps);
    const std::int64_t position = std::clamp<std::int64_t>(done - config_.warmup_steps, 0, length);
    const double phase = std::numbers::pi * static_cast<double>(position) / static_cast<double>(length);
    return config_.min_lr + (lr_ - config_.min_lr) * (1 + std::cos(phase)) / 2;
  }
  return lr_;
}

}  // namespace reelgrad
