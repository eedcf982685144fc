#pragma once
#include <cstdint>
#include <vector>

#include "reelgrad/config/config.h"
#include "reelgrad/kernels/learning_rate.h"

namespace reelgrad {

// The learning rate by the configuration: learning_rate_at()'s plan for the host, which tells what the device computes.
class Schedule {
 public:
  // Of updates at steps first_step, first_step + steps_per_update, … of `steps`. Throws usage for a name that is none.
  Schedule(const ScheduleConfig& config, double lr, std::int64_t steps, std::int64_t first_step = 0,
           std::int64_t steps_per_update = 1);
  Schedule(const Schedule&) = delete;  // the plan points into it
  Schedule& operator=(const Schedule&) = delete;

  double at(std::int64_t done) const { return learning_rate_at(plan_, done); }  // of the update after `done` others

  const SchedulePlan& plan() const { return plan_; }  // its milestones live in this object
  const std::vector<std::int64_t>& milestones() const { return milestones_; }

 private:
  std::vector<std::int64_t> milestones_;
  SchedulePlan plan_;
};

}  // namespace reelgrad
