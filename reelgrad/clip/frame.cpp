#include "reelgrad/clip/frame.h"

#include "reelgrad/clip/clip_impl.h"

namespace reelgrad {
namespace {

std::optional<bool> flag_prop(const VSMap* props, const char* name, const VSAPI* api) {
  const std::int64_t value = int_prop(props, name, -1, api);
  return value < 0 ? std::nullopt : std::optional<bool>(value != 0);
}

}  // namespace

Frame::Impl::Impl(std::shared_ptr<const Core> owner, const VSFrame* owned_frame, std::int64_t frame_number,
                  const ClipInfo* info, std::shared_ptr<const GpuPicture> on_card)
    : core(std::move(owner)), frame(owned_frame), number(frame_number), picture(std::move(on_card)) {
  const VSAPI* api = core->api();
  const VSMap* props = api->getFramePropertiesRO(frame);
  view = picture ? FrameView{info->format, info->width, info->height, {}, color_props(props, api), picture.get()}
                 : frame_view(frame, api);
  duration = rational_prop(props, "_DurationNum", "_DurationDen", api);
  sample_aspect = rational_prop(props, "_SARNum", "_SARDen", api);
  const std::int64_t field_based = int_prop(props, "_FieldBased", 0, api);
  interlaced = field_based == 1 || field_based == 2;
  begins_scene = flag_prop(props, "_SceneChangePrev", api);
  ends_scene = flag_prop(props, "_SceneChangeNext", api);
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
std::shared_ptr<const GpuPicture> Frame::gpu_picture() const {
  return impl_->picture;
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
std::optional<bool> Frame::begins_scene() const {
  return impl_->begins_scene;
}
std::optional<bool> Frame::ends_scene() const {
  return impl_->ends_scene;
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
