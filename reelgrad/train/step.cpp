#include "reelgrad/train/step.h"

#include <torch/torch.h>

#include <algorithm>

#include "reelgrad/train/loss.h"

namespace reelgrad {

EagerStep::EagerStep(const Config& config, Precision precision, bool channels_last, Network& network, Updater& updater)
    : loss_(config.loss),
      micro_batch_(config.data.batch),
      samples_(config.data.batch * config.optimizer.accumulate),
      precision_(precision),
      channels_last_(channels_last),
      network_(network),
      updater_(updater),
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

torch::Tensor EagerStep::run(const Fetch& fetch) {
  updater_.zero_grad();
  torch::Tensor total;
  for (int first = 0; first < samples_; first += micro_batch_) {
    const int count = std::min(micro_batch_, samples_ - first);
    torch::Tensor loss = forward_loss(fetch(first, count));
    if (count != samples_) loss = loss * (static_cast<double>(count) / samples_);
    updater_.scaled(loss).backward();
    total = total.defined() ? total + loss.detach() : loss.detach();
  }
  updater_.step();
  return total;
}

}  // namespace reelgrad
