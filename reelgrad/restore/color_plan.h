// In which colours a clip is restored and written: pure decisions.
#pragma once
#include "reelgrad/clip/frame.h"
#include "reelgrad/kernels/color.h"

namespace reelgrad {

struct ColorPlan {
  NetworkColor picture = NetworkColor::rgb;  // of the tensors between reading and writing
  ColorSpec read, write;
  bool enlarges_chroma = false;  // the network restores the first of three planes
  bool copies_chroma = false;    // the network restores luma alone, and chroma planes are the input's
  ColorProps written;            // what the output holds; what does not apply is -1
};

// `in` is what the input's samples mean, `props` what its frame said; `out_height` decides a matrix that is not given
// by the input: BT.709 from 720 lines on, else 6 (BT.601). A gray network restores a colour clip's luma.
ColorPlan plan_colors(NetworkColor network, int scale, const VideoFormat& input, const ColorSpec& in,
                      const ColorProps& props, const VideoFormat& output, int out_height);

}  // namespace reelgrad
