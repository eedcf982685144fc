#include "reelgrad/train/captured_work.h"

#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include <exception>

namespace reelgrad {
namespace {

// A capture that a forbidden call has broken leaves torch between its begin and its end.
void clean_up(const at::cuda::MempoolId_t& pool, at::Generator generator, const at::Generator& generator_before) {
  const c10::DeviceIndex card = c10::cuda::current_device();
  cudaGetLastError();
  c10::cuda::CUDACachingAllocator::endAllocateToPool(card, pool);
  c10::cuda::CUDACachingAllocator::releasePool(card, pool);
  generator.graphsafe_set_state(generator_before);
}

}  // namespace

CapturedWork::CapturedWork(const at::cuda::MempoolId_t& pool, const std::function<void()>& work)
    : graph_(std::make_unique<at::cuda::CUDAGraph>()) {
  at::Generator generator = at::cuda::detail::getDefaultCUDAGenerator();
  const at::Generator generator_before = generator.clone();
  // Other threads (decoding, importing) may call what a capture forbids its own thread.
  try {
    graph_->capture_begin(pool, cudaStreamCaptureModeThreadLocal);
  } catch (...) {
    // Half begun: its destructor would throw (torch's generator does not know it), and that ends the program.
    graph_.release();  // NOLINT(bugprone-unused-return-value)
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
    clean_up(pool, generator, generator_before);
    if (!failure) failure = std::current_exception();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace reelgrad
