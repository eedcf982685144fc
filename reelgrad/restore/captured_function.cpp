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

torch::Tensor make_input(const std::vector<std::int64_t>& shape, torch::ScalarType type, torch::Device device) {
  const auto options = torch::dtype(type).device(device);
  // Zeros: what is not a tile in an incomplete batch must be numbers.
  if (shape.size() == 4) return torch::empty(shape, options, torch::MemoryFormat::ChannelsLast).zero_();
  return torch::zeros(shape, options);
}

}  // namespace

CapturedFunction::CapturedFunction(std::shared_ptr<const TileFunction> function, torch::Device device, bool capture)
    : function_(std::move(function)), device_(device), capture_(capture && device.is_cuda()) {
  if (capture_) pool_ = at::cuda::graph_pool_handle();
}

void CapturedFunction::prepare(const Shape& shape) {
  if (slots_.contains(shape)) return;
  Slot slot{.input = make_input(shape, function_->type, device_)};
  if (capture_) capture(slot);
  slots_.emplace(shape, std::move(slot));
}

void CapturedFunction::capture(Slot& slot) {
  // One at a time in this program: a capture keeps the allocator from returning memory.
  static std::mutex capturing;
  const std::lock_guard lock(capturing);
  for (int i = 0; i < kEagerRuns; ++i) (*function_)(slot.input);
  c10::cuda::getCurrentCUDAStream(device_.index()).synchronize();
  c10::cuda::CUDACachingAllocator::emptyCache();  // what the runs left is of no use to the graph
  try {
    slot.graph = std::make_unique<CapturedWork>(pool_, [&] { slot.output = (*function_)(slot.input); });
    return;
  } catch (const std::exception& error) {
    if (is_out_of_memory(error, device_)) throw;
    log::warn_once("restore: no graph",
                   fmt::format("the network is run op by op, not as a CUDA graph: {}", first_line(error)));
  }
  slot.output = torch::Tensor();
}

CapturedFunction::Slot& CapturedFunction::slot(const Shape& shape) {
  prepare(shape);
  return slots_.at(shape);
}

torch::Tensor CapturedFunction::run(const Shape& shape) {
  Slot& prepared = slot(shape);
  if (!prepared.graph) return (*function_)(prepared.input);
  prepared.graph->replay();
  return prepared.output;
}

}  // namespace reelgrad
