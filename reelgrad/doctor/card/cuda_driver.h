// libcuda: the driver's part that every CUDA program opens.
#pragma once
#include <optional>
#include <string>

#include "reelgrad/base/error.h"
#include "reelgrad/doctor/card/driver_library.h"
#include "reelgrad/doctor/facts.h"

namespace reelgrad {

using CudaDevice = int;

// libcuda's and NVML's numbers of a compute mode, as DeviceFacts names them; empty for another number.
std::string compute_mode_name(int mode);

class CudaDriver : public DriverLibrary {
 public:
  CudaDriver() : DriverLibrary("libcuda.so.1") {}

  // "cuInit says 999 (CUDA_ERROR_UNKNOWN)"
  std::string failure(const char* function, std::optional<int> result) const;

  // Throws failed, with the function's and the error's names.
  template <class... Args>
  void demand(const char* function, Args... args) const {
    const auto result = call(function, args...);
    if (result != 0) fail(failure(function, result));
  }

  // "00112233-4455-6677-8899-aabbccddeeff", of a card or of a slice of one; empty: not known.
  std::string uuid(CudaDevice device) const;

  // What libcuda knows of its device `index`. `uuid` starts with "GPU-" but where the name says that it is a slice.
  DeviceFacts describe(int index) const;
};

}  // namespace reelgrad
