#include "reelgrad/train/meter.h"

#include <torch/torch.h>

#include <limits>

namespace reelgrad {
namespace {

// Before the sums of the values.
enum Count { kSteps, kFinite, kFirstBad, kFirstBadValue, kLast, kCounts };

}  // namespace

LossMeter::LossMeter(std::int64_t values, torch::Device device)
    : state_(torch::zeros({kCounts + values}, torch::dtype(torch::kFloat64).device(device))) {
  clear();
}

torch::Tensor LossMeter::row() const {
  return state_.slice(0, kCounts);
}

void LossMeter::clear() {
  state_.zero_();
  state_.slice(0, kFirstBad, kFirstBad + 1).fill_(-1);
}

torch::Tensor LossMeter::with(const torch::Tensor& values) const {
  torch::NoGradGuard no_grad;
  const auto at = [&](Count count) { return state_.slice(0, count, count + 1); };
  const torch::Tensor first = values.slice(0, 0, 1);
  const torch::Tensor finite = values.isfinite().all().reshape({1});
  const torch::Tensor addends = at::where(finite, values, at::zeros_like(values));
  const torch::Tensor is_first_bad = (at(kFirstBad) < 0).logical_and(finite.logical_not());
  return at::cat({at(kSteps) + 1, at(kFinite) + finite, at::where(is_first_bad, at(kSteps), at(kFirstBad)),
                  at::where(is_first_bad, first, at(kFirstBadValue)), first, row() + addends});
}

void LossMeter::set(const torch::Tensor& next) {
  torch::NoGradGuard no_grad;
  state_.copy_(next);
}

LossMeter::Reading LossMeter::read(const torch::Tensor& state) {
  const auto* values = state.const_data_ptr<double>();
  Reading reading{.steps = static_cast<std::int64_t>(values[kSteps]),
                  .first_bad = static_cast<std::int64_t>(values[kFirstBad]),
                  .first_bad_value = values[kFirstBadValue],
                  .last_value = values[kSteps] > 0 ? values[kLast] : std::numeric_limits<double>::quiet_NaN()};
  for (std::int64_t i = kCounts; i < state.numel(); ++i) reading.means.push_back(values[i] / values[kFinite]);
  return reading;
}

void LossMeter::load_state(const torch::Tensor& state) {
  TORCH_CHECK(state.sizes() == state_.sizes(), "the meter's state is of another loss");
  state_.copy_(state);
}

}  // namespace reelgrad
