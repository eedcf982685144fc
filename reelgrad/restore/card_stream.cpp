#include "reelgrad/restore/card_stream.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace reelgrad {
namespace {

struct FreeStreams {
  std::mutex mutex;
  std::vector<c10::cuda::CUDAStream> streams;  // the one let go last at the end
};

FreeStreams& free_streams() {
  static auto* const streams = new FreeStreams;  // never destroyed: a host may let go of its filters at the very end
  return *streams;
}

c10::cuda::CUDAStream take_stream(c10::Device device) {
  FreeStreams& free = free_streams();
  const std::lock_guard lock(free.mutex);
  const auto found = std::find_if(free.streams.rbegin(), free.streams.rend(),
                                  [&](const auto& stream) { return stream.device_index() == device.index(); });
  if (found == free.streams.rend()) return c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index());
  const c10::cuda::CUDAStream stream = *found;
  free.streams.erase(std::next(found).base());
  return stream;
}

}  // namespace

CardStream::CardStream(c10::Device device) : stream_(take_stream(device)) {}

CardStream::~CardStream() {
  wait();
  FreeStreams& free = free_streams();
  const std::lock_guard lock(free.mutex);
  free.streams.push_back(stream_);
}

void CardStream::wait() const noexcept {
  // A card that has failed has told its user already.
  if (cudaStreamSynchronize(stream_.stream()) != cudaSuccess) cudaGetLastError();
}

}  // namespace reelgrad
