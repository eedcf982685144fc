#include "reelgrad/train/network_loss.h"

#include <torch/torch.h>

#include "reelgrad/frames/color_props.h"
#include "reelgrad/train/frame_pairs.h"
#include "reelgrad/train/trainer.h"

namespace reelgrad {

NetworkLoss::NetworkLoss(const Config& config, Network& network, Precision precision, Adversary* adversary)
    : network_(network),
      precision_(precision),
      device_(network.parameters().front().device()),
      dtype_(network.parameters().front().scalar_type()),
      pairs_(config.loss.temporal.on()),
      loss_(config.loss, parse_network_color(config.data.color), precision),
      adversary_(adversary),
      adversary_weight_(config.loss.gan),
      names_(loss_.names()) {
  if (adversary_ != nullptr) names_.emplace_back("gan");
}

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

torch::Tensor NetworkLoss::prediction_of(const Batch& batch) const {
  const torch::Tensor input = network_input(batch);
  torch::Tensor prediction;
  with_autocast([&] { prediction = forward_checkpointed(network_, input, checkpointing_); });
  return pairs_ ? prediction.unflatten(0, {-1, 2}) : prediction;
}

LossValue NetworkLoss::operator()(const Batch& batch) const {
  const torch::Tensor prediction = prediction_of(batch), target = this->target(batch);
  LossValue value = loss_(prediction, target);
  return adversary_ == nullptr ? value : with_adversary(value, adversarial_term(prediction, target));
}

torch::Tensor NetworkLoss::adversarial_term(const torch::Tensor& prediction, const torch::Tensor& target) const {
  return loss_.times_weight(adversary_weight_, adversary_->generator_loss(prediction, target));
}

LossValue NetworkLoss::with_adversary(const LossValue& value, const torch::Tensor& term) {
  return {.total = value.total + term,
          .terms = at::cat({value.terms, term.detach().reshape({1}).to(value.terms.dtype())})};
}

// Both parts' gradients meet in those of the prediction.
LossValue NetworkLoss::add_gradients(const Batch& batch, const Backward& backward) const {
  const torch::Tensor prediction = prediction_of(batch), target = this->target(batch);
  if (adversary_ == nullptr || !prediction.requires_grad()) {
    LossValue value = loss_(prediction, target);
    backward(value.total);
    return value;
  }
  adversary_->take(prediction);
  const torch::Tensor leaf = prediction.detach().set_requires_grad(true);
  torch::Tensor term = adversarial_term(leaf, target);
  backward(term);
  term = term.detach();
  const LossValue value = loss_(leaf, target);
  backward(value.total);
  prediction.backward(leaf.grad());
  return with_adversary({value.total.detach(), value.terms}, term);
}

void NetworkLoss::predict(const Batch& batch) const {
  const torch::NoGradGuard no_grad;
  adversary_->take(prediction_of(batch));
}

}  // namespace reelgrad
