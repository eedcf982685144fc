#pragma once
#include <cstdint>
#include <vector>

#include "reelgrad/config/config.h"
#include "reelgrad/kernels/learning_rate.h"

namespace reelgrad {

// The steps (0-based) that update a network: `first`, and each `every`-th after it.
struct UpdateSteps {
  std::int64_t first = 0, every = 1;
  bool contains(std::int64_t step) const { return step >= first && (step - first) % every == 0; }
  std::int64_t before(std::int64_t step) const { return step <= first ? 0 : (step - first - 1) / every + 1; }
};

// The learning rate by the configuration: learning_rate_at()'s plan for the host, which tells what the device computes.
class Schedule {
 public:
  // Throws usage for a name that is none.
  Schedule(const ScheduleConfig& config, double lr, std::int64_t steps, UpdateSteps updates = {});
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
