#include "reelgrad/train/step.h"

#include <torch/torch.h>

#include <algorithm>

#include "reelgrad/base/error.h"
#include "reelgrad/train/memory_plan.h"

namespace reelgrad {
namespace {

bool is_due(StepKind kind, std::size_t phase) {
  return ((kind >> phase) & 1U) != 0;
}

}  // namespace

StepOps::StepOps(std::vector<Phase> phases, int samples, bool shared_loss_scale)
    : phases_(std::move(phases)), samples_(samples), shared_loss_scale_(shared_loss_scale) {
  for (const Phase& phase : phases_) losses_.push_back(at::zeros_like(phase.meter->row()));
}

StepKind StepOps::kind_of(std::int64_t step) const {
  StepKind kind = 0;
  for (std::size_t i = 0; i < phases_.size(); ++i)
    if (!phases_[i].is_due || phases_[i].is_due(step)) kind |= 1U << i;
  return kind;
}

StepKind StepOps::largest_kind() const {
  return (1U << phases_.size()) - 1;
}

std::vector<torch::Tensor> StepOps::buffers() const {
  std::vector<torch::Tensor> all;
  for (const Phase& phase : phases_) std::ranges::copy(phase.network->buffers(), std::back_inserter(all));
  return all;
}

bool StepOps::has_batch_statistics() const {
  return std::ranges::any_of(phases_,
                             [](const Phase& phase) { return reelgrad::has_batch_statistics(*phase.network); });
}

void StepOps::drop_gradients() {
  for (const Phase& phase : phases_) phase.updater->zero_grad();
}

void StepOps::clear_gradients() {
  for (const Phase& phase : phases_)
    for (const torch::Tensor& parameter : phase.network->parameters())
      if (parameter.grad().defined()) parameter.mutable_grad().zero_();
}

void StepOps::start_afresh() {
  drop_gradients();
  for (torch::Tensor& losses : losses_) losses.zero_();
}

void StepOps::accumulate(const Batch& batch, StepKind kind) {
  const double share = static_cast<double>(batch.input.size(0)) / samples_;
  for (std::size_t i = 0; i < phases_.size(); ++i) {
    const Phase& phase = phases_[i];
    if (!is_due(kind, i)) {
      phase.instead(batch);
      continue;
    }
    const LossValue value = phase.add_gradients(batch, [&](const torch::Tensor& loss) {
      if (!loss.requires_grad()) fail_usage("model: the network's output does not depend on its parameters");
      phase.updater->scaled(share == 1 ? loss : loss * share).backward();
    });
    losses_[i].add_(at::cat({value.total.detach().reshape({1}).to(torch::kFloat64), value.terms.to(torch::kFloat64)}),
                    share);
  }
}

void StepOps::finish(StepKind kind) {
  std::vector<torch::Tensor> readings(phases_.size());
  for (std::size_t i = 0; i < phases_.size(); ++i) {
    if (!is_due(kind, i)) continue;
    phases_[i].updater->begin_step();
    readings[i] = phases_[i].meter->with(losses_[i]);
  }
  // Whatever may fail for want of memory is behind us.
  for (std::size_t i = 0; i < phases_.size(); ++i) {
    if (!is_due(kind, i)) continue;
    phases_[i].meter->set(readings[i]);
    phases_[i].updater->end_step();
    losses_[i].zero_();
  }
  if (shared_loss_scale_) share_loss_scale(kind);
}

void StepOps::share_loss_scale(StepKind kind) {
  std::vector<Updater*> due, all;
  for (std::size_t i = 0; i < phases_.size(); ++i) {
    all.push_back(phases_[i].updater);
    if (is_due(kind, i)) due.push_back(phases_[i].updater);
  }
  Updater::share_loss_scale(due, all);
}

void EagerStep::run(std::int64_t step) {
  const StepKind kind = ops_.kind_of(step);
  if (!keep_gradients_) ops_.drop_gradients();
  for (int part = 0; part < parts_.parts(); ++part) {
    ops_.accumulate(batches_.next(step, parts_.first(part), parts_.count(part)), kind);
  }
  ops_.finish(kind);
  if (keep_gradients_) {
    ops_.clear_gradients();
  } else {
    ops_.drop_gradients();
  }
}

}  // namespace reelgrad
