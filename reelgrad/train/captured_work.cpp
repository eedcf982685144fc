#include "reelgrad/train/captured_work.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include <exception>

#include "reelgrad/train/replay_state.h"

namespace reelgrad {
namespace {

// What torch's capture_end() does after it has ended a capture, where it did not get so far: a forbidden call broke the
// capture. Each by itself: some of it may have been done.
void end_recording(const at::cuda::MempoolId_t& pool) {
  const c10::DeviceIndex card = c10::cuda::current_device();
  const auto quietly = [](const auto& call) {
    try {
      call();
    } catch (...) {  // nothing was begun
    }
  };
  cudaGetLastError();
  quietly([&] { c10::cuda::CUDACachingAllocator::endAllocateToPool(card, pool); });
  quietly([&] { c10::cuda::CUDACachingAllocator::releasePool(card, pool); });
  quietly([&] { at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(pool); });
  quietly([&] { at::getHostAllocator(at::kCUDA)->release_pool(pool); });
}

}  // namespace

// Knows how far capture_end() came.
class CapturedWork::Graph : public at::cuda::CUDAGraph {
 public:
  bool recorded() const { return capture_ended_; }
};

CapturedWork::CapturedWork(const at::cuda::MempoolId_t& pool, const std::function<void()>& work)
    : graph_(std::make_unique<Graph>()) {
  const GeneratorPlace place(torch::Device(torch::kCUDA, c10::cuda::current_device()));
  try {
    // Other threads (decoding, importing) may call what a capture forbids its own thread.
    graph_->capture_begin(pool, cudaStreamCaptureModeThreadLocal);
  } catch (...) {
    // Half begun, its destructor would throw (torch's generator does not know it), and that ends the program.
    static_cast<void>(graph_.release());
    end_recording(pool);
    place.renew();
    throw;
  }
  std::exception_ptr failure;
  try {
    work();
  } catch (...) {
    failure = std::current_exception();
  }
  try {
    graph_->capture_end();
  } catch (...) {
    if (!failure) failure = std::current_exception();
    if (!graph_->recorded()) {
      end_recording(pool);
      place.renew();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

CapturedWork::~CapturedWork() = default;

void CapturedWork::replay() {
  graph_->replay();
}

}  // namespace reelgrad
