#include "reelgrad/train/fitted_steps.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <vector>

#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/base/text.h"
#include "reelgrad/train/graph_step.h"
#include "reelgrad/train/out_of_memory.h"
#include "reelgrad/train/replay_state.h"

namespace reelgrad {
FittedSteps::FittedSteps(const Config& config, Network& network, NetworkLoss& loss, StepOps& ops, BatchSource& batches,
                         torch::Device device)
    : config_(config),
      network_(network),
      loss_(loss),
      ops_(ops),
      batches_(batches),
      device_(device),
      samples_(config.data.batch * config.optimizer.accumulate),
      plan_(first_plan(config, network)) {}

void FittedSteps::set_plan(const MemoryPlan& plan, std::int64_t next_step) {
  if (plan.frames_on_host && batches_.on_card()) batches_.leave_card(next_step);
  plan_ = plan;
  step_.reset();
}

Step& FittedSteps::current() {
  if (step_) return *step_;
  loss_.set_checkpointing(plan_.checkpointing);
  const MicroBatches parts(samples_, plan_.parts);
  const bool graph = device_.is_cuda() && config_.run.graph == "auto";
  if (graph && can_be_captured(plan_.checkpointing)) {
    step_ = std::make_unique<GraphStep>(ops_, batches_, parts);
  } else {
    if (graph) log::info("steps are run op by op, not as a CUDA graph: copies to host memory cannot be captured");
    step_ = std::make_unique<EagerStep>(ops_, batches_, parts);
  }
  return *step_;
}

void FittedSteps::run(std::int64_t step) {
  fit(step, [&] { current().run(step); });
}

void FittedSteps::fit(std::int64_t step, const std::function<void()>& work) {
  for (;;) {
    std::optional<RandomState> generators;
    std::optional<BufferState> buffers;
    std::string why;
    bool of_the_host = false;  // while the step runs on a card
    std::exception_ptr other;
    try {
      generators = RandomState::now(device_);
      buffers.emplace(ops_.buffers());
      return work();
    } catch (const std::exception& error) {
      if (dynamic_cast<const Error*>(&error) != nullptr) {
        other = std::current_exception();  // a frame, say: the card is well
      } else if (is_out_of_memory(error, device_)) {
        why = numbers_of(error);
      } else if (is_out_of_memory(error)) {
        of_the_host = true;
        why = first_line(error);
      } else {
        throw;
      }
    }
    give_back();
    if (generators) generators->restore();
    if (buffers) buffers->restore();
    if (other) std::rethrow_exception(other);
    if (of_the_host) fail_host_memory(step, why);
    adapt(step, why);
  }
}

std::string FittedSteps::numbers_of(const std::exception& error) const {
  const std::string numbers = describe_memory(memory_numbers(device_, error));
  return numbers.empty() ? first_line(error) : fmt::format("{}\n{}", first_line(error), numbers);
}

void FittedSteps::give_back() {
  step_.reset();
  ops_.start_afresh();
  if (device_.is_cuda()) c10::cuda::CUDACachingAllocator::emptyCache();
}

void FittedSteps::adapt(std::int64_t step, const std::string& why) {
  const std::optional<MemoryPlan> next = config_.memory.on_oom == "adapt" ? next_plan(plan_, limits()) : std::nullopt;
  if (!next) fail_memory(step, why);
  set_plan(*next, step);
  log::warning(fmt::format("step {}: out of memory on {}; going on with {}", step + 1, device_.str(),
                           describe(plan_, samples_)));
  log::write_to_files(log::Level::info, why);
}

void FittedSteps::fail_memory(std::int64_t step, const std::string& why) const {
  const std::string tried = config_.memory.on_oom == "adapt" ? fmt::format("even with {}", describe(plan_, samples_))
                                                             : "and memory.on_oom is \"fail\"";
  throw Error(ErrorKind::out_of_memory,
              fmt::format("step {}: out of memory on {}, {}: {}\nSmallest change first: {}", step + 1, device_.str(),
                          tried, why, memory_advice(config_, plan_)));
}

// The ladder makes room on the card, partly by taking more of the host's.
void FittedSteps::fail_host_memory(std::int64_t step, const std::string& why) const {
  const DataConfig& data = config_.data;
  std::vector<std::string> advice;
  if (plan_.checkpointing.offload) advice.emplace_back("memory.offload = false");
  if (data.pool_frames > data.segment_frames)
    advice.push_back(fmt::format("data.pool_frames = {}", std::max(data.segment_frames, data.pool_frames / 2)));
  advice.emplace_back("ending other programs");
  throw Error(ErrorKind::out_of_memory,
              fmt::format("step {}: the computer's memory is used up, not that of {}: {}\nSmallest change first: {}",
                          step + 1, device_.str(), why, join(advice, "; ")));
}

// A network of one segment gains nothing by itself, but the others are checkpointed with it.
MemoryLimits FittedSteps::limits() const {
  return {.samples = samples_,
          .batch_statistics = ops_.has_batch_statistics(),
          .frames_on_card = batches_.on_card(),
          .segments = std::max(automatic_segments(network_), loss_.has_other_networks() ? 2 : 0),
          .offloaded_segments = automatic_segments(network_, /*offload=*/true)};
}

void FittedSteps::choose_checkpointing(std::int64_t step) {
  if (config_.memory.checkpointing != "auto" || !device_.is_cuda()) return;
  for (const CheckpointPlan& candidate : automatic_checkpointing(limits())) {
    plan_.checkpointing = candidate;
    if (dry_step_fits(step)) break;
  }
  log::info(fmt::format("memory.checkpointing = \"auto\": {}", describe(plan_, samples_)));
}

// The largest micro-batch of a step that updates all networks, of which nothing remains.
bool FittedSteps::dry_step_fits(std::int64_t step) {
  loss_.set_checkpointing(plan_.checkpointing);
  const MicroBatches parts(samples_, plan_.parts);
  const int last = parts.parts() - 1;
  const RandomState generators = RandomState::now(device_);
  BufferState buffers(ops_.buffers());
  bool fits = true;
  try {
    ops_.accumulate(batches_.next(step, parts.first(last), parts.count(last)), ops_.largest_kind());
    c10::cuda::getCurrentCUDAStream(device_.index()).synchronize();
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error, device_)) throw;
    fits = false;
  }
  give_back();
  generators.restore();
  buffers.restore();
  return fits;
}

}  // namespace reelgrad
