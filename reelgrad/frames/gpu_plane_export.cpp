#include "reelgrad/frames/gpu_plane_export.h"

#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "reelgrad/frames/gpu_plane_import.h"
#include "reelgrad/frames/imported_memory.h"
#include "reelgrad/frames/packed_picture.h"
#include "reelgrad/frames/pinned_memory.h"

namespace reelgrad {
namespace {

// VapourSynth makes many frames in one allocation, so that an allocation is opened once. Ids are the core's, therefore
// each writer opens its own.
class CudaFrameWriter : public GpuFrameWriter {
 public:
  CudaFrameWriter(torch::Device device, int max_imports, std::shared_ptr<ImportCounters> counters)
      : device_(device),
        max_imports_(static_cast<std::size_t>(std::max(1, max_imports))),
        counters_(std::move(counters)) {}

  std::shared_ptr<const GpuCanvas> open(const GpuFrame& frame) override {
    const c10::cuda::CUDAGuard guard(device_);
    const c10::cuda::CUDAStreamCaptureModeGuard capturing(kWhileOthersCapture);
    MutablePictureRef ref{.width = frame.width, .height = frame.height};
    CudaCanvas::Memory opened;
    for (int p = 0; p < frame.format.planes(); ++p) {
      check_fits_allocation(frame, p);
      const std::shared_ptr<ImportedMemory> memory = opened_memory(frame, p);
      ref.plane[p] = memory->address() + frame.planes[p].memory.offset;
      ref.stride_bytes[p] = frame.planes[p].stride_bytes;
      opened[static_cast<std::size_t>(p)] = memory;
    }
    return std::make_shared<CudaCanvas>(ref, std::move(opened));
  }

 private:
  std::shared_ptr<ImportedMemory> opened_memory(const GpuFrame& frame, int p) {
    const MemoryPlace& place = frame.planes[p].memory;
    std::shared_ptr<ImportedMemory> closed;  // without the lock: closing waits for the card
    const std::lock_guard lock(mutex_);
    auto found = imports_.find(place.memory_id);
    if (found == imports_.end()) {
      if (imports_.size() >= max_imports_) closed = forget_oldest();
      auto memory = std::shared_ptr<ImportedMemory>(
          new ImportedMemory(frame.export_memory(p), place.memory_bytes, *counters_),
          [counters = counters_](const ImportedMemory* owned) { delete owned; });  // a canvas may outlive the writer
      found = imports_.emplace(place.memory_id, std::move(memory)).first;
    }
    found->second->last_use = ++uses_;
    return found->second;
  }

  std::shared_ptr<ImportedMemory> forget_oldest() {
    const auto oldest = std::min_element(imports_.begin(), imports_.end(), [](const auto& a, const auto& b) {
      return a.second->last_use < b.second->last_use;
    });
    return std::move(imports_.extract(oldest).mapped());
  }

  const torch::Device device_;
  const std::size_t max_imports_;
  const std::shared_ptr<ImportCounters> counters_;

  std::mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<ImportedMemory>> imports_;
  std::uint64_t uses_ = 0;
};

}  // namespace

const CudaCanvas* cuda_canvas(const MutableFrameView& view) {
  return dynamic_cast<const CudaCanvas*>(view.gpu);
}

void copy_plane_to_canvas(const FrameView& from, const CudaCanvas& to, int plane) {
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
  const std::size_t row =
      static_cast<std::size_t>(from.format.plane_width(from.width, plane)) * from.format.bytes_per_sample();
  const std::size_t rows = from.format.plane_height(from.height, plane);
  const std::byte* source = from.planes[plane].data;
  std::ptrdiff_t stride = from.planes[plane].stride_bytes;
  if (const DevicePicture* picture = device_picture(from)) {
    picture->wait_on(c10::cuda::getCurrentCUDAStream());
    source = bytes_of(picture->block()) + picture->layout().offset[plane];
    stride = picture->layout().stride[plane];
  }
  check(cudaMemcpy2DAsync(to.ref().plane[plane], to.ref().stride_bytes[plane], source, stride, row, rows,
                          cudaMemcpyDefault, stream),
        "copying a plane");
}

std::unique_ptr<GpuFrameWriter> make_cuda_frame_writer(torch::Device device, int max_imports,
                                                       std::shared_ptr<ImportCounters> counters) {
  return std::make_unique<CudaFrameWriter>(device, max_imports, std::move(counters));
}

}  // namespace reelgrad
