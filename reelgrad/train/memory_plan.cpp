#include "reelgrad/train/memory_plan.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>

#include "reelgrad/base/text.h"

namespace reelgrad {

bool has_batch_statistics(const torch::nn::Module& network) {
  const auto buffers = network.named_buffers();
  return std::ranges::any_of(buffers.keys(), [](const std::string& key) { return key.ends_with("running_mean"); });
}

MemoryPlan first_plan(const Config& config, Network& network) {
  MemoryPlan plan{.parts = config.optimizer.accumulate};
  const std::string& asked = config.memory.checkpointing;
  if (asked == "on") {
    plan.checkpointing.segments = automatic_segments(network, config.memory.offload);
  } else if (asked != "off" && asked != "auto") {
    plan.checkpointing.segments = std::stoi(asked);
  }
  plan.checkpointing.offload = config.memory.offload && plan.checkpointing.segments > 0;
  return plan;
}

std::optional<MemoryPlan> next_plan(const MemoryPlan& plan, const MemoryLimits& limits) {
  MemoryPlan next = plan;
  if (limits.frames_on_card && !plan.frames_on_host) {
    next.frames_on_host = true;
    return next;
  }
  if (plan.parts < limits.samples && !limits.batch_statistics) {
    next.parts = std::min(plan.parts * 2, limits.samples);
    return next;
  }
  if (plan.checkpointing.segments < limits.segments && limits.segments > 1) {
    next.checkpointing.segments = limits.segments;
    return next;
  }
  if (plan.checkpointing.segments > 0 && !plan.checkpointing.offload) {
    next.checkpointing = {std::max(plan.checkpointing.segments, limits.offloaded_segments), true};
    return next;
  }
  return std::nullopt;
}

std::vector<CheckpointPlan> automatic_checkpointing(const MemoryLimits& limits) {
  std::vector<CheckpointPlan> plans{{}};
  if (limits.segments > 1) plans.push_back({limits.segments, false});
  if (limits.offloaded_segments > 1) plans.push_back({limits.offloaded_segments, true});
  return plans;
}

std::string describe(const MemoryPlan& plan, int samples) {
  std::vector<std::string> parts{fmt::format("{} micro-batch{} of {}", plan.parts, plan.parts == 1 ? "" : "es",
                                             (samples + plan.parts - 1) / plan.parts)};
  if (plan.checkpointing.segments > 0)
    parts.push_back(fmt::format("{} checkpointed segments", plan.checkpointing.segments));
  if (plan.checkpointing.offload) parts.emplace_back("offloading");
  if (plan.frames_on_host) parts.emplace_back("decoded frames in host memory");
  return join(parts, ", ");
}

torch::Tensor to_tensor(const MemoryPlan& plan) {
  return torch::tensor({std::int64_t{plan.frames_on_host}, std::int64_t{plan.parts},
                        std::int64_t{plan.checkpointing.segments}, std::int64_t{plan.checkpointing.offload}},
                       torch::kInt64);
}

MemoryPlan memory_plan(const torch::Tensor& tensor) {
  const auto* values = tensor.const_data_ptr<std::int64_t>();
  return {.frames_on_host = values[0] != 0,
          .parts = static_cast<int>(values[1]),
          .checkpointing = {.segments = static_cast<int>(values[2]), .offload = values[3] != 0}};
}

}  // namespace reelgrad
