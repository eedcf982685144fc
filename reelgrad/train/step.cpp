#include "reelgrad/train/step.h"

#include <torch/torch.h>

#include <algorithm>

#include "reelgrad/train/loss.h"

namespace reelgrad {

EagerStep::EagerStep(const Config& config, Precision precision, bool channels_last, Network& network,
                     Optimizer& optimizer, Ema* ema, GradScaler* scaler)
    : loss_(config.loss),
      clip_norm_(config.optimizer.clip_norm),
      micro_batch_(config.data.batch),
      samples_(config.data.batch * config.optimizer.accumulate),
      precision_(precision),
      channels_last_(channels_last),
      network_(network),
      optimizer_(optimizer),
      ema_(ema),
      scaler_(scaler),
      device_(network.parameters().front().device()),
      dtype_(network.parameters().front().scalar_type()) {}

torch::Tensor EagerStep::forward_loss(const Batch& batch) {
  torch::Tensor input = batch.input.to(dtype_);
  if (channels_last_ && input.dim() == 4) input = input.contiguous(torch::MemoryFormat::ChannelsLast);
  torch::Tensor prediction;
  {
    const AutocastGuard autocast(device_, precision_);
    prediction = network_.forward(input);
  }
  return compute_loss(loss_, prediction, batch.target.to(dtype_));
}

torch::Tensor EagerStep::run(const Fetch& fetch, const LearningRate& lr) {
  optimizer_.zero_grad();
  torch::Tensor total;
  for (int first = 0; first < samples_; first += micro_batch_) {
    const int count = std::min(micro_batch_, samples_ - first);
    torch::Tensor loss = forward_loss(fetch(first, count));
    if (count != samples_) loss = loss * (static_cast<double>(count) / samples_);
    (scaler_ ? scaler_->scale(loss) : loss).backward();
    total = total.defined() ? total + loss.detach() : loss.detach();
  }

  const std::vector<torch::Tensor> gradients = optimizer_.gradients();
  std::optional<torch::Tensor> found_inf;
  if (scaler_) {
    scaler_->unscale(gradients);
    found_inf = scaler_->found_inf();
  }
  if (clip_norm_ > 0) clip_by_norm(gradients, clip_norm_);
  optimizer_.step(lr, found_inf);
  if (ema_) ema_->update(found_inf);
  if (scaler_) scaler_->update();
  return total;
}

}  // namespace reelgrad
