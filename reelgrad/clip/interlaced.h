#pragma once
#include "reelgrad/clip/clip.h"

namespace reelgrad {

// Warns, once a clip, of a frame that is flagged interlaced: filters that resize treat its fields apart, so that the
// two sides of a pair may not match, and networks see both fields as one picture.
void warn_if_interlaced(const Clip& clip, const Frame& frame);

}  // namespace reelgrad
