#include "reelgrad/train/schedule.h"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <utility>

#include "reelgrad/base/error.h"

namespace reelgrad {
namespace {

ScheduleKind schedule_kind(const std::string& name) {
  static constexpr std::array<std::pair<std::string_view, ScheduleKind>, 5> kKinds{{
      {"constant", ScheduleKind::constant},
      {"multistep", ScheduleKind::multistep},
      {"cosine", ScheduleKind::cosine},
      {"linear", ScheduleKind::linear},
      {"onecycle", ScheduleKind::onecycle},
  }};
  for (const auto& [known, kind] : kKinds) {
    if (name == known) return kind;
  }
  fail_usage(
      fmt::format("schedule.name: unknown \"{}\", allowed: constant, multistep, cosine, linear, onecycle", name));
}

}  // namespace

Schedule::Schedule(const ScheduleConfig& config, double lr, std::int64_t steps, UpdateSteps updates)
    : milestones_(config.milestones),
      plan_{.kind = schedule_kind(config.name),
            .lr = lr,
            .min_lr = config.min_lr,
            .gamma = config.gamma,
            .rise = config.rise,
            .start_divisor = config.start_divisor,
            .end_divisor = config.end_divisor,
            .steps = steps,
            .warmup_steps = config.warmup_steps,
            .milestones = milestones_.data(),
            .milestone_count = static_cast<std::int64_t>(milestones_.size()),
            .first_step = updates.first,
            .steps_per_update = updates.every} {}

}  // namespace reelgrad
