#include "reelgrad/restore/staged_function.h"

#include <torch/torch.h>

namespace reelgrad {

StagedFunction::StagedFunction(std::shared_ptr<const TileFunction> function, torch::Device device,
                               const GraphPool& pool, const std::vector<std::int64_t>& window, PartCache& cache)
    : function_(std::move(function)),
      device_(device),
      pool_(pool),
      cache_(cache),
      window_(make_input(window, function_->type, device)) {
  std::vector<std::int64_t> part = window;
  part[1] = function_->stages->frames;
  part_ = make_input(part, function_->type, device);
  first_.emplace([function = function_, part = part_] { return function->first(part); }, device, pool);
  if (!device.is_cuda()) return;  // where nothing is recorded or planned, the first window comes soon enough
  const torch::Tensor features = first_->run();
  cache.allocate(features);
  prepare_second(features);
}

void StagedFunction::prepare_second(const torch::Tensor& features) {
  for (int i = 0; i < function_->parts(); ++i) parts_.push_back(at::zeros_like(features));
  second_.emplace([function = function_, parts = parts_, window = window_] { return function->second(parts, window); },
                  device_, pool_);
}

std::vector<std::optional<NamedFrames>> StagedFunction::part_names(const std::optional<NamedFrames>& window) const {
  std::vector<std::optional<NamedFrames>> names(static_cast<std::size_t>(function_->parts()));
  if (!window) return names;
  for (std::size_t i = 0; i < names.size(); ++i) {
    names[i] = window->part(static_cast<int>(i), function_->stages->frames);
  }
  return names;
}

torch::Tensor StagedFunction::run_first(int part) {
  part_.copy_(window_.narrow(1, part, function_->stages->frames));
  return first_->run();
}

torch::Tensor StagedFunction::run(const std::optional<NamedFrames>& name) {
  held_.emplace(cache_, part_names(name));
  held_->give([this](int part) { return run_first(part); },
              [this](int part, const torch::Tensor& features) {
                if (!second_) prepare_second(features);
                parts_[static_cast<std::size_t>(part)].copy_(features);
              });
  return second_->run();
}

}  // namespace reelgrad
