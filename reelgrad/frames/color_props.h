#pragma once
#include <cstdint>
#include <string>

#include "reelgrad/clip/frame.h"
#include "reelgrad/config/config.h"
#include "reelgrad/kernels/color.h"

namespace reelgrad {

// Decides what a frame's samples mean: an override wins over the property; a missing or unspecified matrix is BT.709
// from 720 lines on, else BT.601 (6), with one warning a clip that names `_Matrix`, its value, the frame, the clip and
// the key `data.matrix_in`; missing range: full for RGB, limited otherwise (as VapourSynth assumes); missing chroma
// location: left. `clip_name` and `frame` are for messages. Throws usage for a matrix we cannot convert, naming the
// key.
ColorSpec resolve_color(const VideoFormat& format, const ColorProps& props, int height, const ColorOverrides& overrides,
                        const std::string& clip_name, std::int64_t frame);

NetworkColor parse_network_color(const std::string& name);  // "rgb" | "gray" | "yuv444"
std::string to_string(NetworkColor color);

}  // namespace reelgrad
