#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "reelgrad/clip/video_format.h"

namespace reelgrad {

class GpuCanvas;
class GpuPicture;

// One plane in host memory: rows of `stride_bytes`, of which only width × bytes_per_sample hold samples.
// Valid while its frame lives.
struct PlaneView {
  const std::byte* data = nullptr;
  std::ptrdiff_t stride_bytes = 0;
};

struct MutablePlaneView {
  std::byte* data = nullptr;
  std::ptrdiff_t stride_bytes = 0;
};

// A picture without its owner. Valid while the frame it was taken from lives.
struct FrameView {
  VideoFormat format;
  int width = 0, height = 0;
  std::array<PlaneView, 3> planes;
  ColorProps color;
  const GpuPicture* gpu = nullptr;  // the picture where it is in a card's memory: then there are no planes
};

// Where a picture is to be written.
struct MutableFrameView {
  VideoFormat format;
  int width = 0, height = 0;
  std::array<MutablePlaneView, 3> planes;
  const GpuCanvas* gpu = nullptr;  // the planes where they are in a card's memory: then there are none here
};

// A VapourSynth frame, shared and immutable. Copying is cheap; thread-safe as VapourSynth's reference counts are.
class Frame {
 public:
  struct Impl;
  Frame() = default;
  explicit Frame(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  explicit operator bool() const { return impl_ != nullptr; }

  std::int64_t number() const;
  FrameView view() const;
  // Of a clip made by Clip::on_gpu, as its target's reader made it: view() without an end. Else nullptr.
  std::shared_ptr<const GpuPicture> gpu_picture() const;
  Rational duration() const;       // _DurationNum/_DurationDen in seconds; 0/1 when not set
  Rational sample_aspect() const;  // _SARNum/_SARDen; 0/1 when not set
  bool interlaced() const;         // _FieldBased is 1 or 2
  // _SceneChangePrev and _SceneChangeNext: the frame is the first, the last of a scene; nullopt when not set.
  std::optional<bool> begins_scene() const;
  std::optional<bool> ends_scene() const;

 private:
  std::shared_ptr<const Impl> impl_;
};

// A picture in host memory that we own: rows contiguous, planes one after the other.
class OwnedPicture {
 public:
  OwnedPicture(VideoFormat format, int width, int height, ColorProps color = {});
  FrameView view() const;
  MutableFrameView mutable_view();
  std::size_t size_bytes() const { return bytes_; }

 private:
  VideoFormat format_;
  int width_, height_;
  ColorProps color_;
  std::size_t bytes_ = 0;
  std::array<std::size_t, 3> offsets_{};
  std::unique_ptr<std::byte[]> data_;
};

}  // namespace reelgrad
