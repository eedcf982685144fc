#include "reelgrad/train/adversary.h"

#include <torch/torch.h>

#include <utility>

#include "reelgrad/frames/color_props.h"
#include "reelgrad/train/trainer.h"

namespace reelgrad {
namespace {

// The parameters that require a gradient do not while it lives.
class WithoutGradients {
 public:
  explicit WithoutGradients(const torch::nn::Module& network) {
    for (const torch::Tensor& parameter : network.parameters())
      if (parameter.requires_grad()) trained_.push_back(parameter.set_requires_grad(false));
  }
  WithoutGradients(const WithoutGradients&) = delete;
  WithoutGradients& operator=(const WithoutGradients&) = delete;
  ~WithoutGradients() {
    for (const torch::Tensor& parameter : trained_) parameter.set_requires_grad(true);
  }

 private:
  std::vector<torch::Tensor> trained_;
};

torch::Tensor mean_of_all(const std::vector<torch::Tensor>& scales) {
  torch::Tensor sum;
  for (const torch::Tensor& logits : scales) {
    const torch::Tensor mean = logits.mean();
    sum = sum.defined() ? sum + mean : mean;
  }
  return sum / static_cast<double>(scales.size());
}

std::vector<torch::Tensor> detached(const std::vector<torch::Tensor>& scales) {
  std::vector<torch::Tensor> all;
  for (const torch::Tensor& logits : scales) all.push_back(logits.detach());
  return all;
}

}  // namespace

DiscriminatorOptions discriminator_options(const Config& config) {
  const DiscriminatorConfig& asked = config.discriminator;
  const int colors = channels(parse_network_color(config.data.color));
  return {.net = config.loss.gan.net,
          .channels = colors * asked.frames,
          .features = asked.features,
          .scales = asked.scales,
          .size_px = config.data.crop_px * config.model.scale,
          .layers = asked.layers,
          .norm = asked.norm,
          .skips = asked.skips,
          .second_derivatives = asked.r1 > 0};
}

UpdateSteps generator_steps(const Config& config) {
  if (config.loss.gan.weight == 0) return {};
  const std::int64_t every = config.discriminator.iters;
  return {.first = (config.discriminator.init_iters / every + 1) * every - 1, .every = every};
}

Adversary::Adversary(const Config& config, std::shared_ptr<Discriminator> discriminator, torch::Device device,
                     Precision precision)
    : network_(std::move(discriminator)),
      device_(device),
      precision_(precision),
      loss_(parse_gan_kind(config.loss.gan.kind), config.loss.gan.label_smoothing),
      middle_(config.loss.gan.kind == "lsgan" ? 0.5 : 0),
      r1_(config.discriminator.r1),
      frames_together_(config.discriminator.frames > 1),
      term_names_{"gan"} {
  if (r1_ > 0) term_names_.emplace_back("r1");
  network_->to(device);
  if (prefers_channels_last(device)) to_channels_last(*network_);
  network_->train();
}

torch::Tensor Adversary::pictures(const torch::Tensor& frames) const {
  torch::Tensor x = frames;
  if (x.dim() == 5) x = frames_together_ ? x.flatten(1, 2) : x.flatten(0, 1);
  return prefers_channels_last(device_) ? x.contiguous(torch::MemoryFormat::ChannelsLast) : x;
}

std::vector<torch::Tensor> Adversary::judged(const torch::Tensor& pictures, const CheckpointPlan& plan) const {
  const AutocastGuard autocast(device_, precision_);
  return forward_checkpointed(*network_, pictures, plan);
}

torch::Tensor Adversary::generator_loss(const torch::Tensor& prediction, const torch::Tensor& target) const {
  const WithoutGradients frozen(*network_);
  std::vector<torch::Tensor> real;
  if (loss_.is_relativistic()) {
    const torch::NoGradGuard no_grad;
    real = judged(pictures(target), {});
  }
  return loss_.generator_loss(real, judged(pictures(prediction), checkpointing_));
}

// Scalar; 0 without r1.
torch::Tensor Adversary::penalty(const std::vector<torch::Tensor>& logits, const torch::Tensor& real) const {
  return r1_ > 0 ? r1_ / 2 * r1_penalty(logits, real)
                 : torch::zeros({}, logits.front().options().dtype(torch::kFloat32));
}

LossValue Adversary::add_gradients(const torch::Tensor& target, const Backward& backward) {
  const torch::Tensor fake = pictures(std::exchange(taken_, torch::Tensor()));
  const torch::Tensor real = pictures(target).detach().set_requires_grad(r1_ > 0);
  std::vector<torch::Tensor> real_logits = judged(real, r1_ > 0 ? CheckpointPlan{} : checkpointing_);
  torch::Tensor loss, r1 = penalty(real_logits, real);
  std::vector<torch::Tensor> fake_logits;
  if (loss_.is_relativistic()) {
    fake_logits = judged(fake, checkpointing_);
    loss = loss_.discriminator_loss(real_logits, fake_logits);
    backward(r1_ > 0 ? loss + r1 : loss);
  } else {
    const torch::Tensor real_loss = loss_.real_part(real_logits);
    backward(r1_ > 0 ? real_loss + r1 : real_loss);
    real_logits = detached(real_logits);
    fake_logits = judged(fake, checkpointing_);
    const torch::Tensor fake_loss = loss_.fake_part(fake_logits);
    backward(fake_loss);
    loss = real_loss.detach() + fake_loss;
  }
  loss = loss.detach();
  r1 = r1.detach().to(loss.dtype());
  std::vector<torch::Tensor> terms{loss};
  if (r1_ > 0) terms.push_back(r1);
  return {.total = loss + r1,
          .terms = at::cat({at::stack(terms), measures(real_logits, fake_logits).to(loss.dtype())})};
}

// Relativistic losses look at how much more real the ones are than the others on average.
torch::Tensor Adversary::measures(const std::vector<torch::Tensor>& real,
                                  const std::vector<torch::Tensor>& fake) const {
  const torch::NoGradGuard no_grad;
  const torch::ScalarType type = real.front().scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
  std::vector<torch::Tensor> reals, fakes;
  for (const torch::Tensor& logits : real) reals.push_back(logits.to(type));
  for (const torch::Tensor& logits : fake) fakes.push_back(logits.to(type));
  std::vector<torch::Tensor> right;
  for (std::size_t i = 0; i < reals.size(); ++i) {
    const torch::Tensor above = loss_.is_relativistic() ? fakes[i].mean() : at::full_like(fakes[i].mean(), middle_);
    const torch::Tensor below = loss_.is_relativistic() ? reals[i].mean() : above;
    right.push_back((reals[i] > above).to(type));
    right.push_back((fakes[i] < below).to(type));
  }
  return at::stack({mean_of_all(reals), mean_of_all(fakes), mean_of_all(right)});
}

}  // namespace reelgrad
