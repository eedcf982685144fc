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

struct GraphStep::Part {
  std::unique_ptr<ReplayedBatch> batch;
  std::unique_ptr<CapturedWork> work;
};

GraphStep::GraphStep(StepOps& ops, BatchSource& batches, MicroBatches parts)
    : ops_(ops), batches_(batches), parts_(parts), eager_(ops, batches, parts), eager_left_(kEagerSteps) {
  // Micro-batches add to gradients that stay where they are.
  if (parts.parts() > 1) eager_.keep_gradients();
}

GraphStep::~GraphStep() {
  discard();
}

void GraphStep::discard() {
  captured_.clear();
  update_.reset();
}

void GraphStep::run(std::int64_t step) {
  if (!why_not_.empty()) return eager_.run(step);
  if (eager_left_ > 0) {
    --eager_left_;
    return eager_.run(step);
  }
  if (captured_.empty() && !capture(step)) return eager_.run(step);
  for (int i = 0; i < parts_.parts(); ++i) {
    Part& part = part_of(parts_.count(i));
    part.batch->prepare(step, parts_.first(i));
    part.work->replay();
    part.batch->end_of_cut();
  }
  if (update_) update_->replay();
}

std::optional<double> GraphStep::replay_seconds(int times) {
  if (captured_.empty()) return std::nullopt;
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream();
  stream.synchronize();
  const auto start = std::chrono::steady_clock::now();
  for (int n = 0; n < times; ++n) {
    for (int i = 0; i < parts_.parts(); ++i) part_of(parts_.count(i)).work->replay();
    if (update_) update_->replay();
  }
  stream.synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / times;
}

// False: the steps cannot be captured, and why_not_ says why.
bool GraphStep::capture(std::int64_t step) {
  try {
    prepare(step);
    record();
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
    std::unique_ptr<Part>& part = captured_[parts_.count(i)];
    if (part) continue;
    part = std::make_unique<Part>();
    part->batch = replayed_batch(batches_, parts_.count(i));
    part->batch->prepare(step, parts_.first(i));
  }
}

void GraphStep::record() {
  // What the eager steps left in the allocator's cache is of no use to the graph.
  c10::cuda::CUDACachingAllocator::emptyCache();
  const at::cuda::MempoolId_t pool = at::cuda::graph_pool_handle();
  const bool whole = parts_.parts() == 1;
  if (!whole) ops_.clear_gradients();  // as each step leaves them to the next
  for (const auto& item : captured_) {
    const std::unique_ptr<Part>& part = item.second;
    part->work = std::make_unique<CapturedWork>(pool, [&] {
      part->batch->cut();
      ops_.accumulate(part->batch->batch());
      if (!whole) return;
      ops_.finish();
      ops_.drop_gradients();
    });
  }
  if (whole) return;
  update_ = std::make_unique<CapturedWork>(pool, [&] {
    ops_.finish();
    ops_.clear_gradients();
  });
}

}  // namespace reelgrad
