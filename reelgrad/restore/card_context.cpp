#include "reelgrad/restore/card_context.h"

#include <c10/cuda/CUDAException.h>
#include <cuda_runtime_api.h>

namespace reelgrad {
namespace {

// The driver's own functions: the runtime has none for contexts. Null where the driver cannot be asked.
template <class Function>
Function* driver_function(const char* name) {
  constexpr unsigned kVersion = 12000;
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &function, kVersion, cudaEnableDefault, &found);
  if (error != cudaSuccess) cudaGetLastError();
  return error == cudaSuccess && found == cudaDriverEntryPointSuccess ? reinterpret_cast<Function*>(function) : nullptr;
}

using GetCurrent = int(void**);
using SetCurrent = int(void*);

GetCurrent* get_current() {
  static GetCurrent* const function = driver_function<GetCurrent>("cuCtxGetCurrent");
  return function;
}

SetCurrent* set_current() {
  static SetCurrent* const function = driver_function<SetCurrent>("cuCtxSetCurrent");
  return function;
}

}  // namespace

CardContext::CardContext(torch::Device device) {
  if (!device.is_cuda()) return;
  if (get_current() == nullptr || get_current()(&before_) != 0) before_ = nullptr;
  // By the runtime, not by torch, which would see the right card and leave another library's context of it.
  C10_CUDA_CHECK(cudaSetDevice(device.index()));
}

CardContext::~CardContext() {
  if (before_ != nullptr && set_current() != nullptr) set_current()(before_);
}

}  // namespace reelgrad
