#include "reelgrad/restore/frame_cache.h"

#include <c10/cuda/CUDAStream.h>
#include <torch/torch.h>

#include <algorithm>

#include "reelgrad/frames/pinned_memory.h"

namespace reelgrad {

FrameCache::FrameCache(const VideoFormat& format, int width, int height, torch::Device device, int kept, int slots)
    : format_(format),
      width_(width),
      height_(height),
      device_(device),
      kept_(static_cast<std::size_t>(kept)),
      layout_(format, width, height),
      uploads_(layout_.bytes, slots, device) {}

FrameCache::~FrameCache() = default;

std::shared_ptr<FrameCache::Picture> FrameCache::find_or_add(std::optional<std::int64_t> number) {
  if (!number || kept_ == 0) return std::make_shared<Picture>();
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(pictures_, *number, &decltype(pictures_)::value_type::first);
  if (found != pictures_.end()) {
    pictures_.splice(pictures_.begin(), pictures_, found);
  } else {
    pictures_.emplace_front(*number, std::make_shared<Picture>());
    if (pictures_.size() > kept_) pictures_.pop_back();
  }
  return pictures_.front().second;
}

std::shared_ptr<const FrameCache::Picture> FrameCache::get(const FrameView& view, std::optional<std::int64_t> number) {
  const std::shared_ptr<Picture> picture = find_or_add(number);
  const std::lock_guard lock(picture->uploading_);
  if (!picture->ready_) {
    const auto bytes = static_cast<std::int64_t>(layout_.bytes);
    // Before anything of this frame is queued on the current stream, so that nothing on it still uses the memory; and
    // whoever read the memory's last picture kept that until the reading was over.
    picture->block_ = torch::empty({bytes}, torch::dtype(torch::kUInt8).device(device_));
    uploads_.send(view, layout_, bytes_of(picture->block_));
    picture->ready_ = uploads_.mark();
    picture->ref_ = packed_ref(layout_, bytes_of(picture->block_), format_, width_, height_);
  }
  picture->ready_->block(c10::cuda::getCurrentCUDAStream(device_.index()));
  return picture;
}

}  // namespace reelgrad
