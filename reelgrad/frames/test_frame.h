// Views of test pictures, as VapourSynth frames give them.
#pragma once
#include "reelgrad/clip/frame.h"
#include "reelgrad/kernels/test_picture.h"

namespace reelgrad {

inline FrameView view_of(const TestPicture& picture) {
  const PictureRef ref = picture.ref();
  FrameView view{.format = picture.format(), .width = ref.width, .height = ref.height};
  for (int p = 0; p < picture.format().planes(); ++p) view.planes[p] = {ref.plane[p], ref.stride_bytes[p]};
  return view;
}

inline MutableFrameView mutable_view_of(TestPicture& picture) {
  const MutablePictureRef ref = picture.mutable_ref();
  MutableFrameView view{.format = picture.format(), .width = ref.width, .height = ref.height};
  for (int p = 0; p < picture.format().planes(); ++p) view.planes[p] = {ref.plane[p], ref.stride_bytes[p]};
  return view;
}

}  // namespace reelgrad
