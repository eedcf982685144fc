#include "reelgrad/clip/frame_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "reelgrad/base/error.h"
#include "reelgrad/clip/clip_impl.h"

namespace reelgrad {
namespace {

// VapourSynth rounds rows up to at most this.
constexpr std::int64_t kRowAlignment = 64;

std::int64_t frame_bytes(const ClipInfo& info) {
  std::int64_t bytes = 0;
  for (int plane = 0; plane < info.format.planes(); ++plane) {
    const std::int64_t row = std::int64_t{info.format.plane_width(info.width, plane)} * info.format.bytes_per_sample();
    bytes += (row + kRowAlignment - 1) / kRowAlignment * kRowAlignment * info.format.plane_height(info.height, plane);
  }
  return bytes;
}

std::vector<std::int64_t> frame_numbers(std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> frames(static_cast<std::size_t>(std::max<std::int64_t>(count, 0)));
  for (std::size_t i = 0; i < frames.size(); ++i) frames[i] = first + static_cast<std::int64_t>(i);
  return frames;
}

}  // namespace

// Note [Requests]. `requested_` frames have been asked for, `taken_` were handed over; a frame between the two occupies
// slot (order % slots), so there are never more of them than slots: that is the memory bound. Both the consumer and
// VapourSynth's callback ask for more frames, never holding the mutex while they do, because VapourSynth may answer on
// the same thread. `callbacks_` counts requests whose callback has not ended yet; the destructor waits for zero, and
// the callback touches nothing after it has counted itself out.
struct FrameStream::Impl {
  struct Slot {
    Impl* stream = nullptr;
    const VSFrame* frame = nullptr;
    std::string error;
    bool done = false;
  };

  Impl(Clip source, std::vector<std::int64_t> frames, const StreamOptions& options)
      : clip_(std::move(source)),
        api_(clip_.impl().core->api()),
        node_(clip_.impl().node()),
        frames_(std::move(frames)) {
    for (const std::int64_t n : frames_) check_frame_number(clip_, n);
    limit_ = options.in_flight > 0 ? options.in_flight : std::max(1, clip_.impl().core->threads());
    constexpr std::int64_t kMaxAhead = 256;
    const std::int64_t affordable = std::max<std::int64_t>(1, options.budget_bytes / frame_bytes(clip_.info()));
    slots_ = std::vector<Slot>(
        std::clamp<std::size_t>(frames_.size(), 1, static_cast<std::size_t>(std::min(affordable, kMaxAhead))));
    for (Slot& slot : slots_) slot.stream = this;
    request_more();
  }

  ~Impl() {
    std::unique_lock lock(mutex_);
    cancelled_ = true;
    changed_.wait(lock, [&] { return callbacks_ == 0; });
    for (Slot& slot : slots_) clip_.impl().discard(slot.frame);
  }

  std::optional<Frame> next() {
    std::unique_lock lock(mutex_);
    if (cancelled_ || taken_ == frames_.size()) return std::nullopt;
    Slot& slot = slots_[taken_ % slots_.size()];
    changed_.wait(lock, [&] { return slot.done || cancelled_; });
    if (cancelled_) return std::nullopt;
    const std::int64_t number = frames_[taken_++];
    const VSFrame* frame = std::exchange(slot.frame, nullptr);
    const std::string error = std::exchange(slot.error, {});
    slot.done = false;
    lock.unlock();
    if (!frame) {
      request_more();
      fail_frame(clip_.impl(), number, error);
    }
    Frame result = clip_.impl().wrap(frame, number);
    request_more();
    return result;
  }

  void cancel() {
    std::lock_guard lock(mutex_);
    cancelled_ = true;
    changed_.notify_all();
  }

  void request_more() {
    while (true) {
      std::unique_lock lock(mutex_);
      const bool room = requested_ - taken_ < slots_.size() && in_flight_ < limit_;
      if (cancelled_ || !room || requested_ == frames_.size()) return;
      Slot* slot = &slots_[requested_ % slots_.size()];
      const std::int64_t number = frames_[requested_++];
      ++in_flight_;
      ++callbacks_;
      lock.unlock();
      api_->getFrameAsync(static_cast<int>(number), node_, on_done, slot);
    }
  }

  static void VS_CC on_done(void* user, const VSFrame* frame, int, VSNode*, const char* error) {
    Slot* slot = static_cast<Slot*>(user);
    slot->stream->receive(*slot, frame, error);
  }

  // On a thread of VapourSynth's: nothing may be thrown.
  void receive(Slot& slot, const VSFrame* frame, const char* error) noexcept {
    {
      std::lock_guard lock(mutex_);
      slot.frame = frame;
      if (!frame && error) slot.error = error;
      slot.done = true;
      --in_flight_;
      changed_.notify_all();
    }
    request_more();
    std::lock_guard lock(mutex_);
    --callbacks_;
    changed_.notify_all();
  }

 private:
  Clip clip_;
  const VSAPI* api_;
  VSNode* node_;
  const std::vector<std::int64_t> frames_;
  int limit_ = 1;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Slot> slots_;
  std::size_t requested_ = 0, taken_ = 0;
  int in_flight_ = 0, callbacks_ = 0;
  bool cancelled_ = false;
};

FrameStream::FrameStream(Clip clip, std::int64_t first, std::int64_t count, StreamOptions options)
    : FrameStream(std::move(clip), frame_numbers(first, count), options) {}

FrameStream::FrameStream(Clip clip, std::vector<std::int64_t> frames, StreamOptions options)
    : impl_(std::make_unique<Impl>(std::move(clip), std::move(frames), options)) {}

FrameStream::FrameStream(FrameStream&&) noexcept = default;
FrameStream& FrameStream::operator=(FrameStream&&) noexcept = default;
FrameStream::~FrameStream() = default;

std::optional<Frame> FrameStream::next() {
  return impl_->next();
}
void FrameStream::cancel() {
  impl_->cancel();
}

}  // namespace reelgrad
