#pragma once
#include <c10/cuda/CUDAStream.h>

namespace reelgrad {

// One of torch's streams, never the default one, that no other CardStream has meanwhile. They are taken again:
// libraries keep memory for each stream that they ever saw.
class CardStream {
 public:
  explicit CardStream(c10::Device device);
  CardStream(const CardStream&) = delete;
  CardStream& operator=(const CardStream&) = delete;
  ~CardStream();  // what was queued has run

  const c10::cuda::CUDAStream& get() const { return stream_; }
  void wait() const noexcept;

 private:
  c10::cuda::CUDAStream stream_;
};

}  // namespace reelgrad
