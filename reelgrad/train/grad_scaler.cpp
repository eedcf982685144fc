#include "reelgrad/train/grad_scaler.h"

#include "reelgrad/train/snapshot_state.h"

namespace reelgrad {

GradScaler::GradScaler(torch::Device device, const Options& options) : options_(options) {
  const auto on_device = torch::TensorOptions().device(device);
  scale_ = torch::full({1}, options.initial_scale, on_device.dtype(torch::kFloat32));
  growth_tracker_ = torch::zeros({1}, on_device.dtype(torch::kInt32));
  found_inf_ = torch::zeros({1}, on_device.dtype(torch::kFloat32));
  updates_ = torch::zeros({1}, on_device.dtype(torch::kInt64));
  skipped_ = torch::zeros_like(updates_);
  in_a_row_ = torch::zeros_like(updates_);
}

torch::Tensor GradScaler::scale(const torch::Tensor& loss) const {
  return loss * scale_.squeeze();
}

void GradScaler::unscale(const std::vector<torch::Tensor>& gradients) {
  torch::NoGradGuard no_grad;
  found_inf_.zero_();
  // By way of float64: the reciprocal of a large float32 scale is not exact.
  const torch::Tensor inverse = scale_.to(torch::kFloat64).reciprocal().to(torch::kFloat32);
  at::_amp_foreach_non_finite_check_and_unscale_(gradients, found_inf_, inverse);
}

void GradScaler::update() {
  torch::NoGradGuard no_grad;
  at::_amp_update_scale_(scale_, growth_tracker_, found_inf_, options_.growth, options_.backoff,
                         options_.growth_interval);
  const torch::Tensor skipped = found_inf_.to(torch::kInt64);
  skipped_.add_(skipped);
  updates_.add_(1 - skipped);
  in_a_row_.add_(1).mul_(skipped);
}

GradScaler::Counters GradScaler::counters() const {
  const torch::Tensor counts = at::cat({updates_, skipped_, in_a_row_}).cpu();
  const auto* values = counts.const_data_ptr<std::int64_t>();
  return {scale_.item<double>(), values[0], values[1], values[2]};
}

NamedTensors GradScaler::state() const {
  return {{"scale", scale_},
          {"growth_tracker", growth_tracker_},
          {"updates", updates_},
          {"skipped", skipped_},
          {"skipped_in_a_row", in_a_row_}};
}

void GradScaler::load_state(const NamedTensors& state) {
  const StateReader reader(state);
  for (const auto& [name, tensor] : this->state()) reader.copy_to(tensor, name);
}

}  // namespace reelgrad
