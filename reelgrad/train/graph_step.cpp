#include "reelgrad/train/graph_step.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <chrono>

#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/train/out_of_memory.h"

namespace reelgrad {
namespace {

constexpr int kEagerSteps = 2;

// For a source that can only give batches: they are copied to where the graph reads.
class CopiedBatch : public ReplayedBatch {
 public:
  CopiedBatch(BatchSource& source, int count) : source_(source), count_(count) {}
  const Batch& batch() const override { return batch_; }
  void prepare(std::int64_t step, int first) override {
    const Batch next = source_.next(step, first, count_);
    if (!batch_.input.defined()) {
      batch_ = {next.input.clone(), next.target.clone()};
      return;
    }
    batch_.input.copy_(next.input);
    batch_.target.copy_(next.target);
  }
  void cut() override {}
  void end_of_cut() override {}

 private:
  BatchSource& source_;
  int count_;
  Batch batch_;
};

std::unique_ptr<ReplayedBatch> replayed_batch(BatchSource& source, int count) {
  std::unique_ptr<ReplayedBatch> batch = source.replayed(count);
  return batch ? std::move(batch) : std::make_unique<CopiedBatch>(source, count);
}

}  // namespace

GraphStep::GraphStep(StepOps& ops, BatchSource& batches, MicroBatches parts)
    : ops_(ops), batches_(batches), parts_(parts), eager_(ops, batches, parts), pool_(at::cuda::graph_pool_handle()) {
  // Micro-batches add to gradients that stay where they are.
  if (parts.parts() > 1) eager_.keep_gradients();
}

GraphStep::~GraphStep() {
  discard();
}

void GraphStep::discard() {
  captured_.clear();
  replayed_.clear();
}

GraphStep::Captured& GraphStep::of_kind(StepKind kind) {
  return captured_.try_emplace(kind, Captured{.eager_left = kEagerSteps}).first->second;
}

void GraphStep::run(std::int64_t step) {
  if (!why_not_.empty()) return eager_.run(step);
  const StepKind kind = ops_.kind_of(step);
  Captured& captured = of_kind(kind);
  if (captured.eager_left > 0) {
    --captured.eager_left;
    return eager_.run(step);
  }
  if (captured.parts.empty() && !capture(step, kind, captured)) return eager_.run(step);
  for (int i = 0; i < parts_.parts(); ++i) {
    ReplayedBatch& batch = *replayed_.at(parts_.count(i));
    batch.prepare(step, parts_.first(i));
    captured.parts.at(parts_.count(i))->replay();
    batch.end_of_cut();
  }
  if (captured.update) captured.update->replay();
  last_ = kind;
}

std::optional<double> GraphStep::replay_seconds(int times) {
  const auto found = captured_.find(last_);
  if (found == captured_.end() || found->second.parts.empty()) return std::nullopt;
  const Captured& captured = found->second;
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream();
  stream.synchronize();
  const auto start = std::chrono::steady_clock::now();
  for (int n = 0; n < times; ++n) {
    for (int i = 0; i < parts_.parts(); ++i) captured.parts.at(parts_.count(i))->replay();
    if (captured.update) captured.update->replay();
  }
  stream.synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / times;
}

// False: the steps cannot be captured, and why_not_ says why.
bool GraphStep::capture(std::int64_t step, StepKind kind, Captured& captured) {
  try {
    prepare(step);
    record(kind, captured);
    return true;
  } catch (const std::exception& error) {
    const bool full = is_out_of_memory(error, torch::kCUDA);
    if (!full && dynamic_cast<const Error*>(&error) != nullptr) throw;  // of a frame: no reason of the graph's
    why_not_ = full ? "the card's memory does not hold the graph beside the rest" : first_line(error);
  }
  discard();
  ops_.start_afresh();
  c10::cuda::CUDACachingAllocator::emptyCache();
  log::info(fmt::format("steps are run op by op, not as a CUDA graph: {}", why_not_));
  return false;
}

// Batches of every size, each with samples of this step.
void GraphStep::prepare(std::int64_t step) {
  for (int i = 0; i < parts_.parts(); ++i) {
    std::unique_ptr<ReplayedBatch>& batch = replayed_[parts_.count(i)];
    if (batch) continue;
    batch = replayed_batch(batches_, parts_.count(i));
    batch->prepare(step, parts_.first(i));
  }
}

void GraphStep::record(StepKind kind, Captured& captured) {
  // What the eager steps left in the allocator's cache is of no use to the graph.
  c10::cuda::CUDACachingAllocator::emptyCache();
  const bool whole = parts_.parts() == 1;
  if (!whole) ops_.clear_gradients();  // as each step leaves them to the next
  for (const auto& item : replayed_) {
    ReplayedBatch& batch = *item.second;
    captured.parts[item.first] = std::make_unique<CapturedWork>(pool_, [&] {
      batch.cut();
      ops_.accumulate(batch.batch(), kind);
      if (!whole) return;
      ops_.finish(kind);
      ops_.drop_gradients();
    });
  }
  if (whole) return;
  captured.update = std::make_unique<CapturedWork>(pool_, [&] {
    ops_.finish(kind);
    ops_.clear_gradients();
  });
}

}  // namespace reelgrad
