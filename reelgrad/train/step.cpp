#include "reelgrad/train/step.h"

#include <torch/torch.h>

#include "reelgrad/base/error.h"

namespace reelgrad {

StepOps::StepOps(std::vector<Phase> phases, int samples, LossMeter& meter)
    : phases_(std::move(phases)), samples_(samples), meter_(meter), losses_(at::zeros_like(meter.row())) {}

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
  losses_.zero_();
}

void StepOps::accumulate(const Batch& batch) {
  const double share = static_cast<double>(batch.input.size(0)) / samples_;
  std::vector<torch::Tensor> values;
  for (const Phase& phase : phases_) {
    const LossValue value = phase.loss(batch);
    if (!value.total.requires_grad()) fail_usage("model: the network's output does not depend on its parameters");
    const torch::Tensor weighted = share == 1 ? value.total : value.total * share;
    phase.updater->scaled(weighted).backward();
    values.push_back(value.total.detach().reshape({1}).to(torch::kFloat64));
    values.push_back(value.terms.to(torch::kFloat64));
  }
  losses_.add_(at::cat(values), share);
}

void StepOps::finish() {
  for (const Phase& phase : phases_) phase.updater->begin_step();
  meter_.add(losses_);
  for (const Phase& phase : phases_) phase.updater->end_step();
  losses_.zero_();
}

void EagerStep::run(std::int64_t step) {
  ops_.drop_gradients();
  for (int part = 0; part < parts_.parts(); ++part) {
    ops_.accumulate(batches_.next(step, parts_.first(part), parts_.count(part)));
  }
  ops_.finish();
  if (!keep_gradients_) ops_.drop_gradients();
}

}  // namespace reelgrad
