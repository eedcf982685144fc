#include "reelgrad/train/not_finite.h"

#include <fmt/format.h>
#include <torch/torch.h>

namespace reelgrad {
namespace {

bool is_finite(const torch::Tensor& tensor) {
  return !tensor.is_floating_point() || tensor.isfinite().all().item<bool>();
}

std::string in_samples(const torch::Tensor& batch, const char* what, int first_sample) {
  for (std::int64_t i = 0; i < batch.size(0); ++i)
    if (!is_finite(batch[i])) return fmt::format("the {} of sample {}", what, first_sample + i);
  return {};
}

std::string in_network(const StepUnderTest& step, const Batch& batch) {
  const torch::NoGradGuard no_grad;
  std::string found;
  step.autocast([&] {
    const std::vector<NetworkSegment> segments = step.network.segments();
    std::vector<torch::Tensor> state{step.network_input(batch)};
    for (std::size_t i = 0; i < segments.size() && found.empty(); ++i) {
      state = segments[i](state);
      for (const torch::Tensor& tensor : state)
        if (!is_finite(tensor))
          found = fmt::format("the output of part {} of {} of the network", i + 1, segments.size());
    }
  });
  return found;
}

std::string in_loss(const StepUnderTest& step, const LossValue& value) {
  for (std::int64_t i = 0; i < value.terms.numel(); ++i)
    if (!is_finite(value.terms[i])) return "the loss term " + step.loss_names[static_cast<std::size_t>(i)];
  return is_finite(value.total.detach()) ? "" : "the loss";
}

std::string in_gradients(const StepUnderTest& step, const LossValue& value) {
  const torch::Tensor scaled = step.scaled(value.total);
  scaled.backward();
  for (const auto& item : step.network.named_parameters()) {
    const torch::Tensor& gradient = item.value().grad();
    if (!gradient.defined() || is_finite(gradient)) continue;
    const double scale = (scaled / value.total).item<double>();
    return fmt::format("the gradient of {}{}", item.key(),
                       scale == 1 ? "" : fmt::format(" (the loss times {:.6g})", scale));
  }
  return {};
}

}  // namespace

std::string first_not_finite(const StepUnderTest& step, const Batch& batch, int first_sample) {
  if (const std::string found = in_samples(batch.input, "input", first_sample); !found.empty()) return found;
  if (const std::string found = in_samples(batch.target, "target", first_sample); !found.empty()) return found;
  if (const std::string found = in_network(step, batch); !found.empty()) return found;
  const LossValue value = step.loss(batch);
  if (const std::string found = in_loss(step, value); !found.empty()) return found;
  return in_gradients(step, value);
}

}  // namespace reelgrad
