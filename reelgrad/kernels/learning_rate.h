// The learning rate as a pure function of the updates done: nothing to save, nothing to read back.
#pragma once
#include <cmath>
#include <cstdint>

#include "reelgrad/kernels/host_device.h"

namespace reelgrad {

enum class ScheduleKind { constant, multistep, cosine, linear, onecycle };

// See ScheduleConfig for the keys. `milestones` lies where the schedule is evaluated.
struct SchedulePlan {
  ScheduleKind kind = ScheduleKind::constant;
  double lr = 0, min_lr = 0, gamma = 1;
  double rise = 0, start_divisor = 1, end_divisor = 1;
  std::int64_t steps = 1, warmup_steps = 0;
  const std::int64_t* milestones = nullptr;
  std::int64_t milestone_count = 0;
  // Place in the schedule of update n: first_step + n * steps_per_update. For a network that some steps leave alone.
  std::int64_t first_step = 0, steps_per_update = 1;
};

inline constexpr double kPi = 3.14159265358979323846;

// From `start` at phase 0 to `end` at phase 1 on half a wave.
REELGRAD_HD double cosine_between(double start, double end, double phase) {
  return end + (start - end) * (1 + std::cos(kPi * phase)) / 2;
}

// Share of the way from the end of the warm-up to the last step.
REELGRAD_HD double annealed_share(const SchedulePlan& plan, std::int64_t done) {
  const std::int64_t length = plan.steps > plan.warmup_steps ? plan.steps - plan.warmup_steps : 1;
  const std::int64_t position = done < plan.warmup_steps ? 0 : done - plan.warmup_steps;
  return position < length ? static_cast<double>(position) / static_cast<double>(length) : 1.0;
}

REELGRAD_HD double multistep_rate(const SchedulePlan& plan, std::int64_t done) {
  std::int64_t passed = 0;
  while (passed < plan.milestone_count && plan.milestones[passed] <= done) ++passed;
  return plan.lr * std::pow(plan.gamma, static_cast<double>(passed));
}

REELGRAD_HD double onecycle_rate(const SchedulePlan& plan, std::int64_t done) {
  const double first = plan.lr / plan.start_divisor, last = first / plan.end_divisor;
  const double end = static_cast<double>(plan.steps - 1);
  const double top = plan.rise * static_cast<double>(plan.steps) - 1;
  const double at = static_cast<double>(done) < end ? static_cast<double>(done) : end;
  if (top > 0 && at <= top) return cosine_between(first, plan.lr, at / top);
  return end > top ? cosine_between(plan.lr, last, (at - top) / (end - top)) : plan.lr;
}

REELGRAD_HD double rate_without_warmup(const SchedulePlan& plan, std::int64_t done) {
  switch (plan.kind) {
    case ScheduleKind::constant:
      return plan.lr;
    case ScheduleKind::multistep:
      return multistep_rate(plan, done);
    case ScheduleKind::cosine:
      return cosine_between(plan.lr, plan.min_lr, annealed_share(plan, done));
    case ScheduleKind::linear:
      return plan.lr + (plan.min_lr - plan.lr) * annealed_share(plan, done);
    case ScheduleKind::onecycle:
      return onecycle_rate(plan, done);
  }
  return plan.lr;
}

// Of the update that follows `done` others. The values are those of torch.optim.lr_scheduler:
//   constant   lr
//   multistep  lr * gamma^(milestones <= done)                                                     MultiStepLR
//   cosine     min_lr + (lr - min_lr) (1 + cos(pi (done - W) / (steps - W))) / 2 from done = W on  CosineAnnealingLR
//   linear     lr + (min_lr - lr) (done - W) / (steps - W) from done = W on                        LinearLR
//   onecycle   on half waves from lr / start_divisor up to lr, and down to that over end_divisor   OneCycleLR
//   warm-up    the above * (done + 1) / W while done < W                     LinearLR(start 1/W, total_iters W - 1)
// W: warmup_steps. "Linear from 0": the first update has lr / W, an update at rate 0 would be lost.
// `done` counts steps here, those that left the network alone among them: see SchedulePlan.
REELGRAD_HD double learning_rate_at(const SchedulePlan& plan, std::int64_t updates) {
  const std::int64_t done = plan.first_step + updates * plan.steps_per_update;
  const double rate = rate_without_warmup(plan, done);
  if (done >= plan.warmup_steps) return rate;
  return rate * static_cast<double>(done + 1) / static_cast<double>(plan.warmup_steps);
}

}  // namespace reelgrad
