#include "reelgrad/train/network_loss.h"

#include <torch/torch.h>

#include "reelgrad/frames/color_props.h"
#include "reelgrad/train/replay_state.h"
#include "reelgrad/train/sample_windows.h"
#include "reelgrad/train/trainer.h"

namespace reelgrad {
namespace {

// Without an average there is none to compare with.
LossConfig possible_terms(const Config& config) {
  LossConfig terms = config.loss;
  terms.ldl.ema = terms.ldl.ema && keeps_average(config);
  return terms;
}

class InEvaluation {
 public:
  explicit InEvaluation(Network& network) : network_(network), before_(network.is_training()) { network_.eval(); }
  InEvaluation(const InEvaluation&) = delete;
  InEvaluation& operator=(const InEvaluation&) = delete;
  ~InEvaluation() { network_.train(before_); }

 private:
  Network& network_;
  bool before_;
};

}  // namespace

Loss make_loss(const Config& config, Precision precision) {
  return {possible_terms(config), parse_network_color(config.data.color), precision};
}

NetworkLoss::NetworkLoss(const Config& config, Network& network, Precision precision, Adversary* adversary,
                         std::optional<Loss> loss)
    : network_(network),
      precision_(precision),
      device_(network.parameters().front().device()),
      dtype_(network.parameters().front().scalar_type()),
      frames_(sample_frames(config)),
      loss_(loss ? std::move(*loss) : make_loss(config, precision)),
      adversary_(adversary),
      adversary_weight_(config.loss.gan),
      names_(loss_.names()) {
  if (adversary_ != nullptr) names_.emplace_back("gan");
}

torch::Tensor NetworkLoss::network_input(const Batch& batch) const {
  torch::Tensor input = batch.input.to(dtype_);
  if (frames_ > 1) input = windows_of_frames(input, frames_);
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
  return frames_of(prediction);
}

torch::Tensor NetworkLoss::frames_of(const torch::Tensor& output) const {
  return frames_ > 1 ? output.unflatten(0, {-1, frames_}) : output;
}

// Undefined where no term asks for it. No cast of an averaged weight may be taken for one of the raw weight, in whose
// place it lies.
torch::Tensor NetworkLoss::average_prediction_of(const Batch& batch) const {
  if (average_ == nullptr || !loss_.asks_for_average()) return {};
  const torch::NoGradGuard no_grad;
  const WithoutCastCache without_cast_cache;
  const Updater::EvaluationWeights weights(*average_);
  const InEvaluation evaluation(network_);
  torch::Tensor output;
  with_autocast([&] { output = network_.forward(network_input(batch)); });
  return frames_of(output);
}

LossValue NetworkLoss::operator()(const Batch& batch) const {
  const torch::Tensor average = average_prediction_of(batch);
  const torch::Tensor prediction = prediction_of(batch), target = this->target(batch);
  LossValue value = loss_(prediction, target, average);
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
  const torch::Tensor average = average_prediction_of(batch);
  const torch::Tensor prediction = prediction_of(batch), target = this->target(batch);
  if (adversary_ == nullptr || !prediction.requires_grad()) {
    LossValue value = loss_(prediction, target, average);
    backward(value.total);
    return value;
  }
  adversary_->take(prediction);
  const torch::Tensor leaf = prediction.detach().set_requires_grad(true);
  torch::Tensor term = adversarial_term(leaf, target);
  backward(term);
  term = term.detach();
  const LossValue value = loss_(leaf, target, average);
  backward(value.total);
  prediction.backward(leaf.grad());
  return with_adversary({value.total.detach(), value.terms}, term);
}

void NetworkLoss::predict(const Batch& batch) const {
  const torch::NoGradGuard no_grad;
  adversary_->take(prediction_of(batch));
}

}  // namespace reelgrad
