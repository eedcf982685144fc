#include "reelgrad/frames/upload_ring.h"

namespace reelgrad {
namespace {

class Turn {
 public:
  explicit Turn(BoundedQueue<int>& free) : free_(free), slot_(*free.pop()) {}
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() { free_.push(slot_); }
  int slot() const { return slot_; }

 private:
  BoundedQueue<int>& free_;
  int slot_;
};

}  // namespace

UploadRing::UploadRing(SlotTransport& transport)
    : transport_(transport), free_(static_cast<std::size_t>(transport.slots())) {
  for (int slot = 0; slot < transport.slots(); ++slot) free_.push(slot);
}

void UploadRing::send(const FrameView& frame, const PackedLayout& layout, std::byte* target) {
  const Turn turn(free_);
  transport_.wait(turn.slot());
  pack(frame, layout, transport_.memory(turn.slot()));
  transport_.send(turn.slot(), target, layout.bytes);
}

}  // namespace reelgrad
