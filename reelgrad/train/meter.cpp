#include "reelgrad/train/meter.h"

#include <algorithm>
#include <limits>

namespace reelgrad {

LossMeter::LossMeter(std::int64_t capacity, torch::Device device)
    : losses_(torch::zeros({std::min<std::int64_t>(capacity, 1024)},
                           torch::TensorOptions().dtype(torch::kFloat64).device(device))) {}

void LossMeter::add(const torch::Tensor& loss) {
  torch::NoGradGuard no_grad;
  if (count_ == losses_.size(0)) losses_ = at::cat({losses_, at::zeros_like(losses_)});  // grows with log_every
  losses_[count_++].copy_(loss);
}

std::vector<double> LossMeter::read() const {
  const torch::Tensor values = state().cpu();
  const auto* begin = values.const_data_ptr<double>();
  return {begin, begin + count_};
}

double LossMeter::last() const {
  return count_ == 0 ? std::numeric_limits<double>::quiet_NaN() : losses_[count_ - 1].item<double>();
}

torch::Tensor LossMeter::state() const {
  return losses_.slice(0, 0, count_);
}

void LossMeter::load_state(const torch::Tensor& state) {
  clear();
  for (std::int64_t i = 0; i < state.numel(); ++i) add(state[i]);
}

}  // namespace reelgrad
