#include "reelgrad/train/peak_memory.h"

#include <c10/core/Allocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>

namespace reelgrad {
namespace {

// The CPU allocator keeps no statistics, but tells whoever profiles each thread.
struct CpuReports : c10::MemoryReportingInfoBase {
  std::int64_t now = 0, peak = 0;

  void reportMemoryUsage(void*, std::int64_t bytes, std::size_t, std::size_t, c10::Device device) override {
    if (!device.is_cpu()) return;
    now += bytes;  // negative when freed
    peak = std::max(peak, now);
  }
  bool memoryProfilingEnabled() const override { return true; }
};

auto allocated_bytes(torch::Device device) {
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return c10::cuda::CUDACachingAllocator::getDeviceStats(device.index()).allocated_bytes[kAll];
}

}  // namespace

struct PeakMemory::CpuCounter {
  std::shared_ptr<CpuReports> reports = std::make_shared<CpuReports>();
  c10::DebugInfoGuard guard{c10::DebugInfoKind::PROFILER_STATE, reports};
};

PeakMemory::PeakMemory(torch::Device device) : device_(device) {
  if (device.is_cpu()) {
    cpu_ = std::make_unique<CpuCounter>();
    return;
  }
  c10::cuda::CUDACachingAllocator::resetPeakStats(device.index());
  bytes_before_ = allocated_bytes(device).current;
}

PeakMemory::~PeakMemory() = default;

std::int64_t PeakMemory::bytes() const {
  return cpu_ ? cpu_->reports->peak : allocated_bytes(device_).peak - bytes_before_;
}

}  // namespace reelgrad
