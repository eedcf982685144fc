#include "reelgrad/restore/captured_function.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <mutex>

#include "reelgrad/base/log.h"
#include "reelgrad/train/out_of_memory.h"

namespace reelgrad {
namespace {

// Before a capture libraries choose their kernels and TorchScript compiles what it has seen.
constexpr int kEagerRuns = 2;

// One capture at a time in this program.
std::mutex& capturing() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace

void return_unused_memory() {
  const std::lock_guard lock(capturing());
  c10::cuda::CUDACachingAllocator::emptyCache();
}

GraphPool make_graph_pool(torch::Device device, bool capture) {
  if (!capture || !device.is_cuda()) return std::nullopt;
  return at::cuda::graph_pool_handle();
}

torch::Tensor make_input(const std::vector<std::int64_t>& shape, torch::ScalarType type, torch::Device device) {
  const auto options = torch::dtype(type).device(device);
  // Zeros: what is not a tile in an incomplete batch must be numbers.
  if (shape.size() == 4) return torch::empty(shape, options, torch::MemoryFormat::ChannelsLast).zero_();
  return torch::zeros(shape, options);
}

CapturedCall::CapturedCall(Work work, torch::Device device, const GraphPool& pool) : work_(std::move(work)) {
  if (pool) capture(device, *pool);
}

void CapturedCall::capture(torch::Device device, const at::cuda::MempoolId_t& pool) {
  const std::lock_guard lock(capturing());
  for (int i = 0; i < kEagerRuns; ++i) work_();
  c10::cuda::getCurrentCUDAStream(device.index()).synchronize();
  c10::cuda::CUDACachingAllocator::emptyCache();  // what the runs left is of no use to the graph
  try {
    graph_ = std::make_unique<CapturedWork>(pool, [&] { output_ = work_(); });
    return;
  } catch (const std::exception& error) {
    if (is_out_of_memory(error, device)) throw;
    log::warn_once("restore: no graph",
                   fmt::format("the network is run op by op, not as a CUDA graph: {}", first_line(error)));
  }
  output_ = torch::Tensor();
}

torch::Tensor CapturedCall::run() {
  if (!graph_) return work_();
  graph_->replay();
  return output_;
}

CapturedFunction::CapturedFunction(std::shared_ptr<const TileFunction> function, torch::Device device, GraphPool pool)
    : function_(std::move(function)), device_(device), pool_(pool) {}

void CapturedFunction::prepare(const Shape& shape) {
  if (slots_.contains(shape)) return;
  const torch::Tensor input = make_input(shape, function_->type, device_);
  CapturedCall call([function = function_, input] { return (*function)(input); }, device_, pool_);
  slots_.emplace(shape, Slot{input, std::move(call)});
}

CapturedFunction::Slot& CapturedFunction::slot(const Shape& shape) {
  prepare(shape);
  return slots_.at(shape);
}

}  // namespace reelgrad
