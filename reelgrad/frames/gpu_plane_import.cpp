#include "reelgrad/frames/gpu_plane_import.h"

#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "reelgrad/base/error.h"
#include "reelgrad/base/log.h"
#include "reelgrad/frames/gpu_plane_export.h"
#include "reelgrad/frames/imported_memory.h"
#include "reelgrad/frames/pinned_memory.h"

namespace reelgrad {

namespace {

using Event = std::shared_ptr<CUevent_st>;

Event record_event(cudaStream_t stream) {
  cudaEvent_t event = nullptr;
  // Whoever waits for it on the host sleeps: VapourSynth's threads share the machine's cores.
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync), "making an event");
  Event owner(event, [](cudaEvent_t owned) { cudaEventDestroy(owned); });
  check(cudaEventRecord(event, stream), "recording an event");
  return owner;
}

bool is_complete(const Event& event) {
  const cudaError_t status = cudaEventQuery(event.get());
  if (status == cudaErrorNotReady) cudaGetLastError();  // an answer, not an error
  return status == cudaSuccess;
}

class ImportedSemaphore {
 public:
  ImportedSemaphore(Descriptor exported, ImportCounters& counters) : counters_(counters) {
    cudaExternalSemaphoreHandleDesc semaphore{};
    semaphore.type = cudaExternalSemaphoreHandleTypeTimelineSemaphoreFd;
    semaphore.handle.fd = exported.get();
    check(cudaImportExternalSemaphore(&semaphore_, &semaphore), "opening VapourSynth's semaphore");
    static_cast<void>(exported.release());  // CUDA's from now on
    ++counters_.open_semaphores;
  }
  ImportedSemaphore(const ImportedSemaphore&) = delete;
  ImportedSemaphore& operator=(const ImportedSemaphore&) = delete;
  ~ImportedSemaphore() {
    cudaDestroyExternalSemaphore(semaphore_);
    --counters_.open_semaphores;
  }

  cudaExternalSemaphore_t get() const { return semaphore_; }

 private:
  ImportCounters& counters_;
  cudaExternalSemaphore_t semaphore_ = nullptr;
};

// Note [Order]. One stream waits for a frame's semaphores and then copies its planes, so the copies of all frames
// follow each other; an event behind them says that the picture is complete, and that VapourSynth may have its frame
// back. A frame is given back by a later read(), or when the reader goes: until then its memory is not used again. Ids
// of allocations and semaphores are the core's, therefore each reader opens its own.
class CudaFrameReader : public GpuFrameReader {
 public:
  // A stream of high priority: a picture that is complete should not wait behind a training step's kernels.
  CudaFrameReader(torch::Device device, const ImportOptions& options, std::shared_ptr<ImportCounters> counters)
      : device_(device),
        max_imports_(static_cast<std::size_t>(std::max(1, options.max_imports))),
        max_unread_(static_cast<std::size_t>(std::max(1, options.max_unread))),
        counters_(std::move(counters)),
        stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, device.index())) {}

  ~CudaFrameReader() override {
    try {
      close();
    } catch (const std::exception& error) {  // a card that has failed reads nothing any more
      log::debug(fmt::format("closing frames on the card: {}", error.what()));
    }
  }

  std::shared_ptr<const GpuPicture> read(GpuFrame frame) override {
    try {
      const c10::cuda::CUDAGuard guard(device_);
      const c10::cuda::CUDAStreamCaptureModeGuard capturing(kWhileOthersCapture);
      return read_frame(frame);
    } catch (const c10::Error& error) {
      fail(fmt::format("reading a frame on the card: {}", error.what_without_backtrace()));
    }
  }

 private:
  struct Unread {
    std::shared_ptr<const void> owner;
    Event read;
  };

  void close() {
    const c10::cuda::CUDAGuard guard(device_);
    const c10::cuda::CUDAStreamCaptureModeGuard capturing(kWhileOthersCapture);
    for (const Unread& frame : unread_) cudaEventSynchronize(frame.read.get());
    counters_->unread -= static_cast<std::int64_t>(unread_.size());
    unread_.clear();
    imports_.clear();
    semaphores_.clear();
  }

  std::shared_ptr<const GpuPicture> read_frame(GpuFrame& frame) {
    const PackedLayout layout(frame.format, frame.width, frame.height);
    const torch::Tensor block = allocate(layout.bytes);
    std::vector<Unread> finished;  // given back without the lock: VapourSynth has locks of its own
    std::unique_lock lock(mutex_);
    Event ready = queue(frame, layout, bytes_of(block));
    unread_.push_back({std::move(frame.owner), ready});
    ++counters_->frames;
    ++counters_->unread;
    while (!unread_.empty() && (unread_.size() > max_unread_ || is_complete(unread_.front().read))) {
      finished.push_back(std::move(unread_.front()));
      unread_.pop_front();
    }
    lock.unlock();
    for (const Unread& other : finished) check(cudaEventSynchronize(other.read.get()), "waiting for a frame");
    counters_->unread -= static_cast<std::int64_t>(finished.size());
    return std::make_shared<DevicePicture>(frame.format, frame.width, frame.height, block, std::move(ready));
  }

  torch::Tensor allocate(std::size_t bytes) const {
    const c10::cuda::CUDAStreamGuard guard(stream_);  // whose work the allocator then orders the block's reuse by
    return torch::empty({static_cast<std::int64_t>(bytes)}, torch::dtype(torch::kUInt8).device(device_));
  }

  // Copies the planes once they are complete; the event behind that.
  Event queue(GpuFrame& frame, const PackedLayout& layout, std::byte* block) {
    try {
      wait_until_complete(frame);
      for (int p = 0; p < frame.format.planes(); ++p) copy_plane(frame, p, layout, block);
      return record_event(stream_.stream());
    } catch (...) {
      cudaStreamSynchronize(stream_.stream());  // what was queued reads a frame and writes a block that now go
      throw;
    }
  }

  void wait_until_complete(const GpuFrame& frame) {
    std::array<cudaExternalSemaphore_t, 3> semaphores{};
    std::array<cudaExternalSemaphoreWaitParams, 3> values{};
    unsigned count = 0;
    for (int p = 0; p < frame.format.planes(); ++p) {
      const GpuPlane& plane = frame.planes[p];
      if (plane.semaphore == 0) continue;
      const cudaExternalSemaphore_t semaphore = opened_semaphore(frame, plane.semaphore);
      const bool same =
          count > 0 && semaphores[count - 1] == semaphore && values[count - 1].params.fence.value == plane.ready_value;
      if (same) continue;
      semaphores[count] = semaphore;
      values[count++].params.fence.value = plane.ready_value;
    }
    if (count == 0) return;
    check(cudaWaitExternalSemaphoresAsync(semaphores.data(), values.data(), count, stream_.stream()),
          "waiting for VapourSynth's semaphores");
  }

  void copy_plane(const GpuFrame& frame, int p, const PackedLayout& layout, std::byte* block) {
    const GpuPlane& plane = frame.planes[p];
    check_fits_allocation(frame, p);
    check(cudaMemcpy2DAsync(block + layout.offset[p], layout.stride[p], opened_memory(frame, p) + plane.memory.offset,
                            plane.stride_bytes, row_bytes(frame, p), frame.format.plane_height(frame.height, p),
                            cudaMemcpyDeviceToDevice, stream_.stream()),
          "copying a plane");
  }

  const std::byte* opened_memory(const GpuFrame& frame, int p) {
    const MemoryPlace& memory = frame.planes[p].memory;
    auto found = imports_.find(memory.memory_id);
    if (found == imports_.end()) {
      if (imports_.size() >= max_imports_) close_oldest_import();
      auto opened = std::make_unique<ImportedMemory>(frame.export_memory(p), memory.memory_bytes, *counters_);
      found = imports_.emplace(memory.memory_id, std::move(opened)).first;
    }
    found->second->last_use = ++uses_;
    return found->second->address();
  }

  void close_oldest_import() {
    check(cudaStreamSynchronize(stream_.stream()), "waiting for copies");
    imports_.erase(std::min_element(imports_.begin(), imports_.end(), [](const auto& a, const auto& b) {
      return a.second->last_use < b.second->last_use;
    }));
  }

  // Semaphores are the core's own, which live as long as it does: their ids stay good, and they are few.
  cudaExternalSemaphore_t opened_semaphore(const GpuFrame& frame, std::uint64_t id) {
    auto found = semaphores_.find(id);
    if (found == semaphores_.end()) {
      found =
          semaphores_.emplace(id, std::make_unique<ImportedSemaphore>(frame.export_semaphore(id), *counters_)).first;
    }
    return found->second->get();
  }

  const torch::Device device_;
  const std::size_t max_imports_, max_unread_;
  const std::shared_ptr<ImportCounters> counters_;
  const c10::cuda::CUDAStream stream_;

  std::mutex mutex_;
  std::map<std::uint64_t, std::unique_ptr<ImportedMemory>> imports_;
  std::map<std::uint64_t, std::unique_ptr<ImportedSemaphore>> semaphores_;
  std::uint64_t uses_ = 0;
  std::deque<Unread> unread_;  // in the order of the stream
};

torch::Device with_index(torch::Device device) {
  if (!device.is_cuda()) fail("frames can come to the memory of a CUDA card only");
  return device.has_index() ? device : torch::Device(torch::kCUDA, c10::cuda::current_device());
}

}  // namespace

DevicePicture::DevicePicture(const VideoFormat& format, int width, int height, torch::Tensor block,
                             std::shared_ptr<CUevent_st> ready)
    : format_(format),
      width_(width),
      height_(height),
      layout_(format, width, height),
      block_(std::move(block)),
      ready_(std::move(ready)) {}

void DevicePicture::wait_on(const c10::Stream& stream) const {
  const c10::cuda::CUDAGuard guard(block_.device());
  if (ready_) check(cudaStreamWaitEvent(c10::cuda::CUDAStream(stream).stream(), ready_.get(), 0), "awaiting a picture");
  block_.record_stream(stream);
}

PictureRef DevicePicture::ref() const {
  return packed_ref(layout_, bytes_of(block_), format_, width_, height_);
}

std::shared_ptr<const DevicePicture> device_picture(const Frame& frame) {
  return std::dynamic_pointer_cast<const DevicePicture>(frame.gpu_picture());
}

const DevicePicture* device_picture(const FrameView& view) {
  return dynamic_cast<const DevicePicture*>(view.gpu);
}

HostView::HostView(const FrameView& view) : view_(view) {
  const DevicePicture* picture = device_picture(view);
  if (!picture) return;
  const c10::cuda::CUDAGuard guard(picture->block().device());
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream();
  picture->wait_on(stream);
  block_ = staging_memory(picture->layout().bytes);
  block_.copy_(picture->block(), /*non_blocking=*/true);
  stream.synchronize();
  for (int p = 0; p < view.format.planes(); ++p) {
    view_.planes[p] = {bytes_of(block_) + picture->layout().offset[p], picture->layout().stride[p]};
  }
  view_.gpu = nullptr;
}

std::optional<CardId> card_of(torch::Device device) {
  if (!device.is_cuda()) return std::nullopt;
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, with_index(device).index()), "asking for the card's UUID");
  CardId card;
  std::copy_n(properties.uuid.bytes, card.size(), card.begin());
  return card;
}

CudaFrameTarget::CudaFrameTarget(torch::Device device, const ImportOptions& options)
    : device_(with_index(device)),
      options_(options),
      card_(card_of(device_).value()),
      counters_(std::make_shared<ImportCounters>()) {}

std::unique_ptr<GpuFrameReader> CudaFrameTarget::open_reader() const {
  return std::make_unique<CudaFrameReader>(device_, options_, counters_);
}

std::unique_ptr<GpuFrameWriter> CudaFrameTarget::open_writer() const {
  return make_cuda_frame_writer(device_, options_.max_imports, counters_);
}

ImportCounts CudaFrameTarget::counts() const {
  return {.frames = counters_->frames,
          .imports = counters_->imports,
          .open_imports = counters_->open_imports,
          .open_semaphores = counters_->open_semaphores,
          .unread = counters_->unread};
}

std::unique_ptr<CudaFrameTarget> frame_target(torch::Device device) {
  return device.is_cuda() ? std::make_unique<CudaFrameTarget>(device) : nullptr;
}

}  // namespace reelgrad
