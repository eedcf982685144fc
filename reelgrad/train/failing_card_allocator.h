// For tests: torch's allocator of the card, of which one request fails as if memory had run out.
#pragma once
#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>

namespace reelgrad::test {

// Takes the place of torch's allocator while it lives; passes everything on but the n-th request.
class FailingCardAllocator : public c10::cuda::CUDACachingAllocator::CUDAAllocator {
 public:
  FailingCardAllocator() { c10::cuda::CUDACachingAllocator::allocator.store(this); }
  FailingCardAllocator(const FailingCardAllocator&) = delete;
  FailingCardAllocator& operator=(const FailingCardAllocator&) = delete;
  ~FailingCardAllocator() override { c10::cuda::CUDACachingAllocator::allocator.store(inner_); }

  // The `count`-th request from now on fails, those after it do not. 0: none.
  void fail_at(std::int64_t count) { left_ = count; }
  bool has_failed() const { return left_ == 0; }

  c10::DataPtr allocate(std::size_t bytes) override {
    count();
    return inner_->allocate(bytes);
  }
  void* raw_alloc(std::size_t bytes) override {
    count();
    return inner_->raw_alloc(bytes);
  }
  void* raw_alloc_with_stream(std::size_t bytes, cudaStream_t stream) override {
    count();
    return inner_->raw_alloc_with_stream(bytes, stream);
  }

  // --- Passed on ---
  using Device = c10::DeviceIndex;
  using Pool = c10::MempoolId_t;
  c10::DeleterFnPtr raw_deleter() const override { return inner_->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { inner_->copy_data(to, from, bytes); }
  void raw_delete(void* memory) override { inner_->raw_delete(memory); }
  void init(int devices) override { inner_->init(devices); }
  bool initialized() override { return inner_->initialized(); }
  double getMemoryFraction(Device device) override { return inner_->getMemoryFraction(device); }
  void setMemoryFraction(double share, Device device) override { inner_->setMemoryFraction(share, device); }
  std::vector<c10::cuda::CUDACachingAllocator::StreamSegmentSize> getExpandableSegmentSizes(Device device) override {
    return inner_->getExpandableSegmentSizes(device);
  }
  void enable(bool on) override { inner_->enable(on); }
  bool isEnabled() const override { return inner_->isEnabled(); }
  void emptyCache(Pool pool) override { inner_->emptyCache(pool); }
  void cacheInfo(Device device, std::size_t* largest) override { inner_->cacheInfo(device, largest); }
  void* getBaseAllocation(void* memory, std::size_t* size) override { return inner_->getBaseAllocation(memory, size); }
  void recordStream(const c10::DataPtr& memory, c10::cuda::CUDAStream stream) override {
    inner_->recordStream(memory, stream);
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(Device device) override {
    return inner_->getDeviceStats(device);
  }
  void resetAccumulatedStats(Device device) override { inner_->resetAccumulatedStats(device); }
  void resetPeakStats(Device device) override { inner_->resetPeakStats(device); }
  c10::cuda::CUDACachingAllocator::SnapshotInfo snapshot(Pool pool, bool traces) override {
    return inner_->snapshot(pool, traces);
  }
  void beginAllocateToPool(Device device, Pool pool, std::function<bool(cudaStream_t)> filter) override {
    inner_->beginAllocateToPool(device, pool, std::move(filter));
  }
  void endAllocateToPool(Device device, Pool pool) override { inner_->endAllocateToPool(device, pool); }
  void releasePool(Device device, Pool pool) override { inner_->releasePool(device, pool); }
  c10::cuda::CUDACachingAllocator::ShareableHandle shareIpcHandle(void* memory) override {
    return inner_->shareIpcHandle(memory);
  }
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override { return inner_->getIpcDevPtr(std::move(handle)); }
  bool isHistoryEnabled() override { return inner_->isHistoryEnabled(); }
  void recordHistory(bool on, c10::cuda::CUDACachingAllocator::CreateContextFn context, std::size_t entries,
                     c10::cuda::CUDACachingAllocator::RecordContext when, bool clear,
                     const std::vector<std::string>& skip) override {
    inner_->recordHistory(on, context, entries, when, clear, skip);
  }
  void attachOutOfMemoryObserver(c10::cuda::CUDACachingAllocator::OutOfMemoryObserver observer) override {
    inner_->attachOutOfMemoryObserver(std::move(observer));
  }
  void attachAllocatorTraceTracker(c10::cuda::CUDACachingAllocator::AllocatorTraceTracker tracker) override {
    inner_->attachAllocatorTraceTracker(std::move(tracker));
  }
  void enablePeerAccess(Device from, Device to) override { inner_->enablePeerAccess(from, to); }
  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device, std::size_t bytes,
                          cudaStream_t stream, bool peer) override {
    return inner_->memcpyAsync(to, to_device, from, from_device, bytes, stream, peer);
  }
  std::shared_ptr<c10::cuda::CUDACachingAllocator::AllocatorState> getCheckpointState(Device device,
                                                                                      Pool pool) override {
    return inner_->getCheckpointState(device, pool);
  }
  c10::cuda::CUDACachingAllocator::CheckpointDelta setCheckpointPoolState(
      Device device, std::shared_ptr<c10::cuda::CUDACachingAllocator::AllocatorState> state) override {
    return inner_->setCheckpointPoolState(device, std::move(state));
  }
  std::string name() override { return inner_->name(); }

 private:
  void count() {
    if (left_ > 0 && --left_ == 0)
      TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate 1.00 GiB.");
  }

  c10::cuda::CUDACachingAllocator::CUDAAllocator* inner_ = c10::cuda::CUDACachingAllocator::get();
  std::atomic<std::int64_t> left_ = 0;  // the backward pass asks from a thread of its own
};

}  // namespace reelgrad::test
