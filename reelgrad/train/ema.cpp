#include "reelgrad/train/ema.h"

#include "reelgrad/train/snapshot_state.h"

namespace reelgrad {

Ema::Ema(double decay, const torch::nn::Module& network) : decay_(decay) {
  for (const auto& item : network.named_parameters()) {
    names_.push_back(item.key());
    parameters_.push_back(item.value());
    averages_.push_back(item.value().detach().clone());
  }
  for (const auto& item : network.named_buffers()) buffers_.emplace_back(item.key(), item.value());
}

void Ema::update(const std::optional<torch::Tensor>& found_inf) {
  torch::NoGradGuard no_grad;
  if (!found_inf) {
    at::_foreach_lerp_(averages_, parameters_, 1 - decay_);
    return;
  }
  // There is no foreach lerp by one device tensor: the same in three ops.
  std::vector<torch::Tensor> change = at::_foreach_sub(parameters_, averages_);
  at::_foreach_mul_(change, (1 - found_inf->squeeze()) * (1 - decay_));
  at::_foreach_add_(averages_, change);
}

NamedTensors Ema::state() const {
  NamedTensors state;
  for (std::size_t i = 0; i < names_.size(); ++i) state.emplace_back(names_[i], averages_[i]);
  state.insert(state.end(), buffers_.begin(), buffers_.end());
  return state;
}

void Ema::load_state(const NamedTensors& state) {
  const StateReader reader(state);
  for (std::size_t i = 0; i < names_.size(); ++i) reader.copy_to(averages_[i], names_[i]);
}

Ema::SwappedIn::SwappedIn(const Ema& ema) : ema_(ema) {
  for (std::size_t i = 0; i < ema.parameters_.size(); ++i) {
    torch::Tensor parameter = ema.parameters_[i];
    raw_.push_back(parameter.variable_data());
    parameter.set_data(ema.averages_[i]);
  }
}

Ema::SwappedIn::~SwappedIn() {
  for (std::size_t i = 0; i < raw_.size(); ++i) {
    torch::Tensor parameter = ema_.parameters_[i];
    parameter.set_data(raw_[i]);
  }
}

}  // namespace reelgrad
