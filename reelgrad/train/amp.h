// Mixed precision: the type in which convolutions run, and the guard that switches it on.
#pragma once
#include <torch/types.h>

#include <string>

namespace reelgrad {

enum class Precision { fp32, fp16, bf16 };  // fp32: the network's own type, autocast off

std::string to_string(Precision precision);

// `amp` as in precision.amp. auto: on a card bf16 from compute capability 8.0, else fp16; on the CPU bf16 only where it
// has instructions for it. Throws usage for fp16 on the CPU. Warns about bf16 that a card can only emulate.
Precision resolve_precision(const std::string& amp, torch::Device device);

// Autocast on for this thread (and the autograd threads that run its backward) while the guard lives, then as before.
// The cache of cast weights is cleared with the outermost guard: it must not outlive an optimizer step.
class AutocastGuard {
 public:
  AutocastGuard(torch::Device device, Precision precision);
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;
  ~AutocastGuard();

 private:
  torch::DeviceType type_;
  bool previous_enabled_;
  torch::ScalarType previous_dtype_;
};

}  // namespace reelgrad
