// From the gradients of one network to its next weights in three passes, each one launch: how long the gradients are
// and whether they are finite; what that means for this update (one thread decides); the update itself with the moving
// average. No result goes through the host, so nothing waits, and the launches can be captured in a CUDA graph.
//
// Tensors are cut into blocks of kUpdateBlock elements. cpu/ takes a range of blocks, for callers that share the work
// over threads; cuda/ takes all of them, asynchronous on the stream. Both give the same bits for the same inputs, apart
// from the last ones of the learning rate, whose cos and pow are the platform's.
#pragma once
#include <cstdint>
#include <span>

#include "reelgrad/kernels/learning_rate.h"

struct CUstream_st;

namespace reelgrad {

enum class UpdateRule { adamw, adam, sgd, lion, schedule_free_adamw };

// What stays the same over a run.
struct UpdatePlan {
  UpdateRule rule = UpdateRule::adamw;
  double beta1 = 0.9, beta2 = 0.99, eps = 1e-8;
  double momentum = 0;  // sgd
  bool nesterov = false;
  double clip_norm = 0, clip_value = 0;  // 0: off
  bool loss_scaling = false;             // gradients carry the loss scale, and those not finite skip the update
  bool sums_norms = false;               // the gradients' norms are summed, for the log
  std::int64_t growth_interval = 2000;   // updates between two doublings of the loss scale
  SchedulePlan schedule;
  double average_decay = 0;  // 0: no moving average
  bool average_warmup = false;
  std::int64_t average_every = 1;
};

// How far training is: lies on the device and is what a checkpoint keeps. Counts are exact to 2^53.
struct UpdateProgress {
  double scale = 1;  // of the loss; a float32 value
  double updates = 0, skipped = 0, skipped_in_a_row = 0;
  double learning_rate = 0;             // of the last update
  double norm_sum = 0, norm_count = 0;  // of the unscaled gradients' norms before clipping, since they were cleared
  double growth_tracker = 0;
  double weight_sum = 0, largest_rate = 0;  // schedule-free: sum of the largest learning rate so far, squared
};

// What one update is done with: decide() writes it, update() reads it. Both on the device.
struct UpdateFactors {
  double skip = 0;                          // 1: nothing is changed
  double gradient_factor = 1;               // undoes the loss scale and clips by norm
  double learning_rate = 0;                 // before a tensor's lr_scale
  double correction1 = 1, correction2 = 1;  // 1 - beta^t
  double free_weight = 0;                   // schedule-free: of the newest z in the average x
  double average_weight = 0;                // of the new weights in the moving average; 0: not this time
};

// Contiguous elements of one memory order. The states are those of torch's optimizers and start as zero, but for z:
//   adamw, adam: exp_avg, exp_avg_sq · sgd: momentum_buffer (null without momentum), - · lion: exp_avg, - ·
//   schedule_free_adamw: exp_avg_sq, z (starts as the parameter)
struct UpdateTensor {
  void* parameter = nullptr;
  void* state1 = nullptr;
  void* state2 = nullptr;
  void* average = nullptr;  // null: none
  std::int64_t count = 0;
  double lr_scale = 1, weight_decay = 0;
};

inline constexpr int kUpdateBlock = 1024;  // elements

struct UpdateBlock {
  std::int32_t tensor = 0;
  std::int64_t begin = 0;  // its first element in the tensor
};

enum class UpdateElement { f32, f64 };

// `tensors` and `blocks` lie on the device; every element is in one block.
struct UpdateTable {
  const UpdateTensor* tensors = nullptr;
  const UpdateBlock* blocks = nullptr;
  int block_count = 0;
  UpdateElement element = UpdateElement::f32;  // of parameters, gradients, states and averages
};

// One a tensor, in the host's memory, pointing to device memory in the parameter's own memory order. Null: the
// parameter took no part in this step; only its average moves.
using GradientPointers = std::span<const void* const>;

namespace cpu {
// sums[b]: the gradients' squares in block b, for the blocks in [first, last).
void sum_squares(const UpdateTable& table, GradientPointers gradients, int first, int last, double* sums);
void decide(const UpdatePlan& plan, std::span<const double> sums, UpdateProgress* progress, UpdateFactors* factors);
void update(const UpdatePlan& plan, const UpdateTable& table, GradientPointers gradients, const UpdateFactors* factors,
            int first, int last);
}  // namespace cpu

namespace cuda {
void sum_squares(const UpdateTable& table, GradientPointers gradients, double* sums, CUstream_st* stream);
void decide(const UpdatePlan& plan, std::span<const double> sums, UpdateProgress* progress, UpdateFactors* factors,
            CUstream_st* stream);
void update(const UpdatePlan& plan, const UpdateTable& table, GradientPointers gradients, const UpdateFactors* factors,
            CUstream_st* stream);
}  // namespace cuda

// Whether an update needs sum_squares(); without it decide() takes no sums.
constexpr bool needs_gradient_norm(const UpdatePlan& plan) {
  return plan.loss_scaling || plan.clip_norm > 0 || plan.sums_norms;
}

}  // namespace reelgrad
