// The learning rate as a pure function of the updates done: nothing to save.
#pragma once
#include <cstdint>
#include <vector>

#include "reelgrad/config/config.h"

namespace reelgrad {

// The values are those of torch.optim.lr_scheduler:
//   constant   lr
//   multistep  lr * gamma^(milestones <= done)                                                     MultiStepLR
//   cosine     min_lr + (lr - min_lr) (1 + cos(pi (done - W) / (steps - W))) / 2 from done = W on  CosineAnnealingLR
//   warm-up    the above * (done + 1) / W while done < W                     LinearLR(start 1/W, total_iters W - 1)
// W: warmup_steps. "Linear from 0": the first update has lr / W, an update at rate 0 would be lost.
class Schedule {
 public:
  Schedule(const ScheduleConfig& config, double lr, std::int64_t steps);

  double at(std::int64_t done) const;  // of the update that follows `done` others

 private:
  double without_warmup(std::int64_t done) const;

  ScheduleConfig config_;
  double lr_;
  std::int64_t steps_;
};

}  // namespace reelgrad
