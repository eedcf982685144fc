// VapourSynth's memory on a card, open in CUDA; for the files of this folder that include CUDA's headers.
#pragma once
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "reelgrad/base/descriptor.h"
#include "reelgrad/base/error.h"
#include "reelgrad/clip/gpu_frames.h"

namespace reelgrad {

struct ImportCounters {
  std::atomic<std::int64_t> frames = 0, imports = 0, open_imports = 0, open_semaphores = 0, unread = 0;
};

inline void check(cudaError_t status, const char* attempt) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // it is told here; the next launch check must not see it
  fail(fmt::format("{}: CUDA says {}", attempt, cudaGetErrorString(status)));
}

// Another thread may be capturing a CUDA graph, which our queries and imports have no part in: CUDA must not take them
// for mistakes of the capture.
inline constexpr cudaStreamCaptureMode kWhileOthersCapture = cudaStreamCaptureModeRelaxed;

inline std::size_t row_bytes(const GpuFrame& frame, int plane) {
  return static_cast<std::size_t>(frame.format.plane_width(frame.width, plane)) * frame.format.bytes_per_sample();
}

// Throws failed where the plane's rows reach out of the allocation that VapourSynth says they are in.
inline void check_fits_allocation(const GpuFrame& frame, int p) {
  const GpuPlane& plane = frame.planes[p];
  const std::size_t row = row_bytes(frame, p);
  const auto rows = static_cast<std::size_t>(frame.format.plane_height(frame.height, p));
  const std::size_t end = plane.memory.offset + static_cast<std::size_t>(plane.stride_bytes) * (rows - 1) + row;
  if (plane.stride_bytes >= static_cast<std::ptrdiff_t>(row) && end <= plane.memory.memory_bytes) return;
  fail(fmt::format("plane {} of {} rows {} bytes apart at {} does not fit VapourSynth's allocation of {} bytes", p,
                   rows, plane.stride_bytes, plane.memory.offset, plane.memory.memory_bytes));
}

// An allocation. Nothing may be using it when it goes.
class ImportedMemory {
 public:
  ImportedMemory(Descriptor exported, std::size_t bytes, ImportCounters& counters) : counters_(counters) {
    cudaExternalMemoryHandleDesc memory{};
    memory.type = cudaExternalMemoryHandleTypeOpaqueFd;
    memory.handle.fd = exported.get();
    memory.size = bytes;
    check(cudaImportExternalMemory(&memory_, &memory), "opening VapourSynth's memory");
    static_cast<void>(exported.release());  // CUDA's from now on
    cudaExternalMemoryBufferDesc buffer{};
    buffer.size = bytes;
    const cudaError_t mapped = cudaExternalMemoryGetMappedBuffer(&address_, memory_, &buffer);
    if (mapped != cudaSuccess) cudaDestroyExternalMemory(memory_);
    check(mapped, "mapping VapourSynth's memory");
    ++counters_.imports;
    ++counters_.open_imports;
  }
  ImportedMemory(const ImportedMemory&) = delete;
  ImportedMemory& operator=(const ImportedMemory&) = delete;
  ~ImportedMemory() {
    cudaFree(address_);
    cudaDestroyExternalMemory(memory_);
    --counters_.open_imports;
  }

  std::byte* address() const { return static_cast<std::byte*>(address_); }
  std::uint64_t last_use = 0;

 private:
  ImportCounters& counters_;
  cudaExternalMemory_t memory_ = nullptr;
  void* address_ = nullptr;
};

}  // namespace reelgrad
