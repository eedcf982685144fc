#include "reelgrad/train/network_loss.h"

#include <torch/torch.h>

#include "reelgrad/frames/color_props.h"
#include "reelgrad/train/frame_pairs.h"
#include "reelgrad/train/trainer.h"

namespace reelgrad {

NetworkLoss::NetworkLoss(const Config& config, Network& network, Precision precision)
    : network_(network),
      precision_(precision),
      device_(network.parameters().front().device()),
      dtype_(network.parameters().front().scalar_type()),
      pairs_(config.loss.temporal.on()),
      loss_(config.loss, parse_network_color(config.data.color), precision) {}

torch::Tensor NetworkLoss::network_input(const Batch& batch) const {
  torch::Tensor input = batch.input.to(dtype_);
  if (pairs_) input = windows_of_pairs(input);
  const bool channels_last = prefers_channels_last(device_) && input.dim() == 4;
  return channels_last ? input.contiguous(torch::MemoryFormat::ChannelsLast) : input;
}

void NetworkLoss::with_autocast(const std::function<void()>& work) const {
  const AutocastGuard autocast(device_, precision_);
  work();
}

LossValue NetworkLoss::operator()(const Batch& batch) const {
  const torch::Tensor input = network_input(batch);
  torch::Tensor prediction;
  with_autocast([&] { prediction = forward_checkpointed(network_, input, checkpointing_); });
  if (pairs_) prediction = prediction.unflatten(0, {-1, 2});
  return loss_(prediction, batch.target.to(dtype_));
}

}  // namespace reelgrad
