#include "reelgrad/restore/precision.h"

#include <ATen/cuda/CUDAContext.h>
#include <fmt/format.h>

#include "reelgrad/base/error.h"

namespace reelgrad {

torch::ScalarType resolve_precision(const std::string& precision, torch::Device device) {
  const bool on_card = device.is_cuda();
  if (precision == "auto") return on_card ? torch::kHalf : torch::kFloat;
  if (precision == "fp32") return torch::kFloat;
  if (precision == "bf16") {
    if (on_card && at::cuda::getDeviceProperties(device.index())->major < 8) {
      fail_usage("precision: bf16 needs a card of compute capability 8.0 or later (allowed here: auto, fp32, fp16)");
    }
    return torch::kBFloat16;
  }
  if (precision == "fp16") {
    if (!on_card) fail_usage("precision: fp16 needs a CUDA card (allowed on the CPU: auto, fp32, bf16)");
    return torch::kHalf;
  }
  fail_usage(fmt::format("precision: unknown \"{}\" (allowed: auto, fp32, fp16, bf16)", precision));
}

std::string precision_name(torch::ScalarType type) {
  return type == torch::kHalf ? "fp16" : type == torch::kBFloat16 ? "bf16" : "fp32";
}

}  // namespace reelgrad
