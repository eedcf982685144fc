#pragma once
#include <torch/types.h>

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>

#include "reelgrad/clip/frame.h"
#include "reelgrad/frames/card_uploads.h"
#include "reelgrad/kernels/gather.h"

namespace reelgrad {

// Pictures of a clip on a card, in its own format; those that were asked for last are kept, so that the windows of
// several frames take each neighbour across once. Thread-safe.
class FrameCache {
 public:
  // One picture. To be kept until what reads it has run.
  class Picture;

  // `kept` pictures stay; `slots` are copied at the same time.
  FrameCache(const VideoFormat& format, int width, int height, torch::Device device, int kept, int slots);
  ~FrameCache();

  // The picture, which the current stream waits for. Without a number it is not kept.
  std::shared_ptr<const Picture> get(const FrameView& view, std::optional<std::int64_t> number);

  static std::size_t bytes(const VideoFormat& format, int width, int height) {
    return PackedLayout(format, width, height).bytes;
  }

 private:
  std::shared_ptr<Picture> find_or_add(std::optional<std::int64_t> number);

  VideoFormat format_;
  int width_, height_;
  torch::Device device_;
  std::size_t kept_;
  PackedLayout layout_;
  CardUploads uploads_;
  std::mutex mutex_;
  std::list<std::pair<std::int64_t, std::shared_ptr<Picture>>> pictures_;  // the latest asked for first
};

class FrameCache::Picture {
 public:
  const PictureRef& ref() const { return ref_; }

 private:
  friend class FrameCache;
  std::mutex uploading_;
  torch::Tensor block_;
  std::shared_ptr<c10::Event> ready_;  // null: not sent yet
  PictureRef ref_;
};

}  // namespace reelgrad
