#include "reelgrad/train/optimizer.h"

#include <fmt/format.h>

#include "reelgrad/base/error.h"

namespace reelgrad {

Optimizer::Optimizer(const OptimizerConfig& config, const torch::nn::Module& network) : config_(config) {
  if (config.name != "adamw" && config.name != "adam") {
    fail_usage(fmt::format("optimizer.name: unknown \"{}\", allowed: adamw, adam", config.name));
  }
  for (const auto& item : network.named_parameters()) {
    const torch::Tensor& parameter = item.value();
    if (!parameter.requires_grad()) continue;
    // zeros_like keeps the memory format, which the fused ops need to agree.
    slots_.push_back(
        {item.key(), parameter, torch::zeros_like(parameter.detach()), torch::zeros_like(parameter.detach())});
  }
  TORCH_CHECK(!slots_.empty(), "a network without parameters cannot be trained");
  updates_ = torch::zeros({}, slots_.front().parameter.options().dtype(torch::kFloat32).requires_grad(false));
}

void Optimizer::zero_grad() {
  for (Slot& slot : slots_) slot.parameter.mutable_grad().reset();
}

std::vector<torch::Tensor> Optimizer::gradients() const {
  std::vector<torch::Tensor> gradients;
  for (const Slot& slot : slots_) {
    if (slot.parameter.grad().defined()) gradients.push_back(slot.parameter.grad());
  }
  return gradients;
}

void Optimizer::step(const LearningRate& lr, const std::optional<torch::Tensor>& found_inf) {
  torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> parameters, exp_avgs, exp_avg_sqs;
  const std::vector<torch::Tensor> grads = gradients();
  for (const Slot& slot : slots_) {
    if (!slot.parameter.grad().defined()) continue;
    parameters.push_back(slot.parameter);
    exp_avgs.push_back(slot.exp_avg);
    exp_avg_sqs.push_back(slot.exp_avg_sq);
  }
  // The ops read the count after this update, and leave counting to us.
  if (found_inf) {
    updates_.add_(1 - found_inf->squeeze());
  } else {
    updates_.add_(1);
  }
  const std::vector<torch::Tensor> counts(parameters.size(), updates_);
  const auto fused = [&](const auto& rate) {
    const auto update = [&](auto op) {
      op(parameters, grads, exp_avgs, exp_avg_sqs, at::TensorList{}, counts, rate, config_.beta1, config_.beta2,
         config_.weight_decay, config_.eps, /*amsgrad=*/false, /*maximize=*/false, std::nullopt, found_inf);
    };
    if (config_.name == "adamw") {
      update([](const auto&... arguments) { at::_fused_adamw_(arguments...); });
    } else {
      update([](const auto&... arguments) { at::_fused_adam_(arguments...); });
    }
  };
  std::visit(fused, lr);
}

NamedTensors Optimizer::state() const {
  NamedTensors state{{"updates", updates_}};
  for (const Slot& slot : slots_) {
    state.emplace_back("exp_avg." + slot.name, slot.exp_avg);
    state.emplace_back("exp_avg_sq." + slot.name, slot.exp_avg_sq);
  }
  return state;
}

void Optimizer::load_state(const NamedTensors& state) {
  const StateReader reader(state);
  for (const auto& [name, tensor] : this->state()) reader.copy_to(tensor, name);
}

void clip_by_norm(const std::vector<torch::Tensor>& gradients, double max_norm) {
  torch::NoGradGuard no_grad;
  constexpr double kEpsilon = 1e-6;  // as torch has it
  const torch::Tensor norm = at::stack(at::_foreach_norm(gradients, 2)).norm();
  at::_foreach_mul_(gradients, (max_norm / (norm + kEpsilon)).clamp_max(1));
}

}  // namespace reelgrad
