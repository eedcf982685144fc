#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDAFunctions.h>
#include <fmt/format.h>

#include <optional>
#include <string>

#include "reelgrad/base/error.h"
#include "reelgrad/train/out_of_memory.h"
#include "reelgrad/train/trainer.h"

namespace reelgrad {
namespace {

constexpr int kOldestMajor = 7, kOldestMinor = 5;

// Why no card at all can be used, or nullopt.
std::optional<std::string> why_no_cards() {
  try {
    c10::cuda::device_count_ensure_non_zero();
    return std::nullopt;
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    if (text.find("no NVIDIA driver") != std::string::npos) return "no NVIDIA driver is loaded";
    if (text.find("too old") != std::string::npos) return "the NVIDIA driver is older than this PyTorch needs";
    if (text.find("No CUDA GPUs") != std::string::npos) return "no CUDA device is visible";
    return first_line(error);
  }
}

std::optional<std::string> why_not_usable(int index) {
  const cudaDeviceProp& card = *at::cuda::getDeviceProperties(index);
  if (card.major > kOldestMajor || (card.major == kOldestMajor && card.minor >= kOldestMinor)) return std::nullopt;
  return fmt::format("{} has compute capability {}.{}, needed: {}.{} or newer", card.name, card.major, card.minor,
                     kOldestMajor, kOldestMinor);
}

[[noreturn]] void fail_device(const std::string& name, const std::string& why) {
  throw Error(ErrorKind::no_device,
              fmt::format("device = \"{}\": {}. `reelgrad doctor` says more; device = \"auto\" goes on without a card",
                          name, why));
}

torch::Device automatic_device() {
  if (why_no_cards()) return torch::kCPU;
  for (int index = 0; index < c10::cuda::device_count(); ++index) {
    if (!why_not_usable(index)) return {torch::kCUDA, static_cast<torch::DeviceIndex>(index)};
  }
  return torch::kCPU;
}

torch::Device parse_device(const std::string& name) {
  try {
    const torch::Device device(name);
    if (device.is_cpu() || device.is_cuda()) return device;
  } catch (const c10::Error&) {  // reported below with what is allowed
  }
  fail_usage(fmt::format("device: unknown \"{}\", allowed: auto, cpu, cuda, cuda:N", name));
}

}  // namespace

torch::Device resolve_device(const std::string& name) {
  if (name == "auto") return automatic_device();
  const torch::Device device = parse_device(name);
  if (device.is_cpu()) return torch::kCPU;
  if (const auto why = why_no_cards()) fail_device(name, *why);
  const int index = device.has_index() ? device.index() : 0;
  if (const int count = c10::cuda::device_count(); index >= count) {
    fail_device(name, fmt::format("there {} only {} card{}, numbered from 0", count == 1 ? "is" : "are", count,
                                  count == 1 ? "" : "s"));
  }
  if (const auto why = why_not_usable(index)) fail_device(name, *why);
  return {torch::kCUDA, static_cast<torch::DeviceIndex>(index)};
}

// Tensor cores want it. On the CPU it makes no difference (measured: Compact 24/6, batch 16, crop 64, 250 ms of one
// core a step either way): oneDNN reorders to its own blocked layout.
bool prefers_channels_last(torch::Device device) {
  return device.is_cuda();
}

void apply_determinism(bool deterministic) {
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(deterministic, /*warn_only=*/false);
  context.setDeterministicFillUninitializedMemory(false);  // a debugging aid that costs a pass over every new tensor
  context.setDeterministicCuDNN(deterministic);
  context.setBenchmarkCuDNN(!deterministic);
}

void apply_tf32(bool allowed) {
  at::globalContext().setAllowTF32CuDNN(allowed);
  at::globalContext().setAllowTF32CuBLAS(allowed);
}

}  // namespace reelgrad
