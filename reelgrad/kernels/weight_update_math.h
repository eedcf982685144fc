// The arithmetic of weight_update.h, shared by cpu/ and cuda/, which are compiled without contraction.
#pragma once
#include <cmath>
#include <type_traits>

#include "reelgrad/kernels/host_device.h"
#include "reelgrad/kernels/weight_update.h"

namespace reelgrad {

// Sums are taken in lanes (element i goes to lane i modulo kSumLanes), then lane i + n is added to lane i for
// n = kSumLanes / 2, ..., 1: an order that threads of a card and vectors of a processor can both keep.
inline constexpr int kSumLanes = 256;

// --- One decision an update ---

// torch.amp.GradScaler's rule (`_amp_update_scale_`), in its precision.
inline constexpr double kScaleGrowth = 2, kScaleBackoff = 0.5;

REELGRAD_HD void shrink_scale(UpdateProgress& progress) {
  progress.scale = static_cast<float>(progress.scale * kScaleBackoff);
  progress.growth_tracker = 0;
}

REELGRAD_HD void grow_scale(std::int64_t interval, UpdateProgress& progress) {
  progress.growth_tracker += 1;
  if (progress.growth_tracker < static_cast<double>(interval)) return;
  progress.growth_tracker = 0;
  const float grown = static_cast<float>(progress.scale * kScaleGrowth);
  if (std::isfinite(grown)) progress.scale = grown;
}

// torch.nn.utils.clip_grad_norm_'s factor; NaN stays NaN.
REELGRAD_HD double norm_clip(double max_norm, double norm) {
  const double factor = max_norm / (norm + 1e-6);
  return factor > 1 ? 1.0 : factor;
}

// Of the `updates`-th update in the moving average.
REELGRAD_HD double average_weight(const UpdatePlan& plan, double updates) {
  if (plan.average_decay <= 0 || std::fmod(updates, static_cast<double>(plan.average_every)) != 0) return 0;
  const double early = (1 + updates) / (10 + updates);
  return 1 - (plan.average_warmup && early < plan.average_decay ? early : plan.average_decay);
}

// schedulefree.AdamWScheduleFree's weight c of z, with its defaults r = 0 and weight_lr_power = 2.
REELGRAD_HD double schedule_free_weight(double learning_rate, UpdateProgress& progress) {
  if (learning_rate > progress.largest_rate) progress.largest_rate = learning_rate;
  const double weight = progress.largest_rate * progress.largest_rate;
  progress.weight_sum += weight;
  return progress.weight_sum > 0 ? weight / progress.weight_sum : 0;
}

// `square_sum`: of the gradients as they are; not finite where one of them is not (or is above 1e154 in float64).
REELGRAD_HD void decide_update(const UpdatePlan& plan, double square_sum, UpdateProgress& progress,
                               UpdateFactors& factors) {
  if (plan.loss_scaling && !std::isfinite(square_sum)) {
    factors.skip = 1;
    shrink_scale(progress);
    progress.skipped += 1;
    progress.skipped_in_a_row += 1;
    return;
  }
  factors.skip = 0;
  // By way of float64, as torch does: the reciprocal of a large float32 scale is not exact.
  const double unscale = plan.loss_scaling ? static_cast<float>(1 / progress.scale) : 1.0;
  const double norm = std::sqrt(square_sum) * unscale;
  const double clip = plan.clip_norm > 0 ? norm_clip(plan.clip_norm, norm) : 1.0;
  if (plan.sums_norms) {
    progress.norm_sum += norm;
    progress.norm_count += 1;
  }
  factors.gradient_factor = unscale * clip;
  factors.learning_rate = learning_rate_at(plan.schedule, static_cast<std::int64_t>(progress.updates));
  progress.learning_rate = factors.learning_rate;
  progress.updates += 1;
  progress.skipped_in_a_row = 0;
  factors.correction1 = 1 - std::pow(plan.beta1, progress.updates);
  factors.correction2 = 1 - std::pow(plan.beta2, progress.updates);
  factors.average_weight = average_weight(plan, progress.updates);
  if (plan.rule == UpdateRule::schedule_free_adamw)
    factors.free_weight = schedule_free_weight(factors.learning_rate, progress);
  if (plan.loss_scaling) grow_scale(plan.growth_interval, progress);
}

// --- One element ---

// A tensor's numbers, rounded once to the type of its elements.
template <class Real>
struct RuleNumbers {
  Real gradient_factor, clip_value;
  Real rate;
  Real l2, decay;  // weight decay added to the gradient; factor on the parameter
  Real beta1, beta2, rest1, rest2, eps;
  Real step_size, root_correction;  // Adam: rate / correction1, 1 / sqrt(correction2)
  Real free_weight, free_rate;
  Real average_weight;
  bool nesterov;
};

template <class Real>
REELGRAD_HD RuleNumbers<Real> rule_numbers(const UpdatePlan& plan, const UpdateFactors& factors,
                                           const UpdateTensor& tensor) {
  const double rate = factors.learning_rate * tensor.lr_scale;
  const bool decoupled = plan.rule == UpdateRule::adamw || plan.rule == UpdateRule::lion;
  const double beta1 = plan.rule == UpdateRule::sgd ? plan.momentum : plan.beta1;
  RuleNumbers<Real> n;
  n.gradient_factor = static_cast<Real>(factors.gradient_factor);
  n.clip_value = static_cast<Real>(plan.clip_value);
  n.rate = static_cast<Real>(rate);
  n.l2 = static_cast<Real>(decoupled ? 0.0 : tensor.weight_decay);
  n.decay = static_cast<Real>(decoupled ? 1 - rate * tensor.weight_decay : 1.0);
  n.beta1 = static_cast<Real>(beta1);
  n.beta2 = static_cast<Real>(plan.beta2);
  n.rest1 = static_cast<Real>(1 - beta1);
  n.rest2 = static_cast<Real>(1 - plan.beta2);
  n.eps = static_cast<Real>(plan.eps);
  n.step_size = static_cast<Real>(rate / factors.correction1);
  n.root_correction = static_cast<Real>(1 / std::sqrt(factors.correction2));
  n.free_weight = static_cast<Real>(factors.free_weight);
  n.free_rate = static_cast<Real>(rate * (plan.beta1 * (1 - factors.free_weight) - 1));
  n.average_weight = static_cast<Real>(factors.average_weight);
  n.nesterov = plan.nesterov;
  return n;
}

// Unscaled and clipped; NaN stays NaN.
template <class Real>
REELGRAD_HD Real ready_gradient(const RuleNumbers<Real>& n, Real gradient) {
  const Real g = gradient * n.gradient_factor;
  if (!(n.clip_value > 0)) return g;
  const Real above = g < -n.clip_value ? -n.clip_value : g;
  return above > n.clip_value ? n.clip_value : above;
}

template <class Real>
struct Weight {
  Real parameter, state1, state2;
};

// torch.optim.AdamW and Adam.
template <class Real>
REELGRAD_HD void adam(const RuleNumbers<Real>& n, Real g, Weight<Real>& w) {
  w.parameter *= n.decay;
  g += n.l2 * w.parameter;
  w.state1 += n.rest1 * (g - w.state1);
  w.state2 = n.beta2 * w.state2 + n.rest2 * g * g;
  w.parameter -= n.step_size * w.state1 / (std::sqrt(w.state2) * n.root_correction + n.eps);
}

// torch.optim.SGD. A momentum buffer that starts as zero equals torch's, which starts as the first gradient.
template <class Real>
REELGRAD_HD void sgd(const RuleNumbers<Real>& n, Real g, Weight<Real>& w) {
  g += n.l2 * w.parameter;
  w.state1 = n.beta1 * w.state1 + g;
  w.parameter -= n.rate * (n.nesterov ? g + n.beta1 * w.state1 : w.state1);
}

// lion_pytorch.Lion.
template <class Real>
REELGRAD_HD void lion(const RuleNumbers<Real>& n, Real g, Weight<Real>& w) {
  w.parameter *= n.decay;
  const Real direction = n.beta1 * w.state1 + n.rest1 * g;
  const Real sign = static_cast<Real>((direction > 0) - (direction < 0));
  w.parameter -= n.rate * (direction == direction ? sign : direction);  // NaN must not pass as 0
  w.state1 = n.beta2 * w.state1 + n.rest2 * g;
}

// schedulefree.AdamWScheduleFree: the parameter is y, state2 is z.
template <class Real>
REELGRAD_HD void schedule_free_adamw(const RuleNumbers<Real>& n, Real g, Weight<Real>& w) {
  w.state1 = n.beta2 * w.state1 + n.rest2 * g * g;
  g = g / (std::sqrt(w.state1) * n.root_correction + n.eps) + n.l2 * w.parameter;
  w.parameter += n.free_weight * (w.state2 - w.parameter);
  w.parameter += n.free_rate * g;
  w.state2 -= n.rate * g;
}

template <UpdateRule rule, class Real>
REELGRAD_HD void apply_rule(const RuleNumbers<Real>& n, Real gradient, Weight<Real>& weight) {
  const Real g = ready_gradient(n, gradient);
  if constexpr (rule == UpdateRule::adamw || rule == UpdateRule::adam) adam(n, g, weight);
  if constexpr (rule == UpdateRule::sgd) sgd(n, g, weight);
  if constexpr (rule == UpdateRule::lion) lion(n, g, weight);
  if constexpr (rule == UpdateRule::schedule_free_adamw) schedule_free_adamw(n, g, weight);
}

template <class Real>
REELGRAD_HD Real moved_average(const RuleNumbers<Real>& n, Real average, Real parameter) {
  return average + n.average_weight * (parameter - average);
}

// Calls `launch` with rule and element type as constants.
template <class Launch>
void with_rule(UpdateRule rule, Launch launch) {
  switch (rule) {
    case UpdateRule::adamw:
      return launch(std::integral_constant<UpdateRule, UpdateRule::adamw>{});
    case UpdateRule::adam:
      return launch(std::integral_constant<UpdateRule, UpdateRule::adam>{});
    case UpdateRule::sgd:
      return launch(std::integral_constant<UpdateRule, UpdateRule::sgd>{});
    case UpdateRule::lion:
      return launch(std::integral_constant<UpdateRule, UpdateRule::lion>{});
    case UpdateRule::schedule_free_adamw:
      return launch(std::integral_constant<UpdateRule, UpdateRule::schedule_free_adamw>{});
  }
}

template <class Launch>
void with_real(UpdateElement element, Launch launch) {
  return element == UpdateElement::f32 ? launch(float{}) : launch(double{});
}

}  // namespace reelgrad
