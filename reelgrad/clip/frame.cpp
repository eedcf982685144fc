#include "reelgrad/clip/frame.h"

#include "reelgrad/clip/clip_impl.h"

namespace reelgrad {

Frame::Impl::Impl(std::shared_ptr<const Core> owner, const VSFrame* owned_frame, std::int64_t frame_number)
    : core(std::move(owner)), frame(owned_frame), number(frame_number) {
  const VSAPI* api = core->api();
  const VSMap* props = api->getFramePropertiesRO(frame);
  view = frame_view(frame, api);
  duration = rational_prop(props, "_DurationNum", "_DurationDen", api);
  sample_aspect = rational_prop(props, "_SARNum", "_SARDen", api);
  const std::int64_t field_based = int_prop(props, "_FieldBased", 0, api);
  interlaced = field_based == 1 || field_based == 2;
  scene_cut_before = int_prop(props, "_SceneChangePrev", 0, api) != 0;
}

Frame::Impl::~Impl() {
  core->api()->freeFrame(frame);
}

std::int64_t Frame::number() const {
  return impl_->number;
}
FrameView Frame::view() const {
  return impl_->view;
}
Rational Frame::duration() const {
  return impl_->duration;
}
Rational Frame::sample_aspect() const {
  return impl_->sample_aspect;
}
bool Frame::interlaced() const {
  return impl_->interlaced;
}
bool Frame::scene_cut_before() const {
  return impl_->scene_cut_before;
}

OwnedPicture::OwnedPicture(VideoFormat format, int width, int height, ColorProps color)
    : format_(format), width_(width), height_(height), color_(color) {
  for (int plane = 0; plane < format.planes(); ++plane) {
    offsets_[plane] = bytes_;
    bytes_ += static_cast<std::size_t>(format.plane_width(width, plane)) * format.plane_height(height, plane) *
              format.bytes_per_sample();
  }
  data_ = std::make_unique<std::byte[]>(bytes_);
}

FrameView OwnedPicture::view() const {
  FrameView view{format_, width_, height_, {}, color_};
  for (int plane = 0; plane < format_.planes(); ++plane) {
    view.planes[plane] = {data_.get() + offsets_[plane],
                          std::ptrdiff_t{format_.plane_width(width_, plane)} * format_.bytes_per_sample()};
  }
  return view;
}

MutableFrameView OwnedPicture::mutable_view() {
  MutableFrameView view{format_, width_, height_, {}};
  for (int plane = 0; plane < format_.planes(); ++plane) {
    view.planes[plane] = {data_.get() + offsets_[plane],
                          std::ptrdiff_t{format_.plane_width(width_, plane)} * format_.bytes_per_sample()};
  }
  return view;
}

}  // namespace reelgrad
