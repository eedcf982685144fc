#pragma once
#include <torch/types.h>

#include <string>

namespace reelgrad {

// auto | fp32 | fp16 | bf16. Throws usage for one that the device cannot do.
torch::ScalarType resolve_precision(const std::string& precision, torch::Device device);
std::string precision_name(torch::ScalarType type);

}  // namespace reelgrad
