#pragma once
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime_api.h>

namespace reelgrad {

// An event of the current card. A thread that waits for it sleeps: others need the cores.
class SleepingEvent {
 public:
  SleepingEvent() { C10_CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming | cudaEventBlockingSync)); }
  SleepingEvent(const SleepingEvent&) = delete;
  SleepingEvent& operator=(const SleepingEvent&) = delete;
  ~SleepingEvent() { cudaEventDestroy(event_); }

  void record(cudaStream_t stream) { C10_CUDA_CHECK(cudaEventRecord(event_, stream)); }
  void wait() { C10_CUDA_CHECK(cudaEventSynchronize(event_)); }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace reelgrad
