// VapourSynth's structs as reelgrad's, for the embedder here and for the plugin alike: nothing in it needs VSScript.
#pragma once
#include <VapourSynth4.h>

#include <optional>

#include "reelgrad/clip/frame.h"
#include "reelgrad/clip/video_format.h"

namespace reelgrad {

// nullopt: variable (undefined) or a depth reelgrad does not take (integers above 16 bits).
std::optional<VideoFormat> to_video_format(const VSVideoFormat& format);

// An integer property, or `fallback` when it is not set.
std::int64_t int_prop(const VSMap* props, const char* key, std::int64_t fallback, const VSAPI* api);

ColorProps color_props(const VSMap* props, const VSAPI* api);

// num/den in lowest terms from two integer properties; 0/1 when either is missing or not positive.
Rational rational_prop(const VSMap* props, const char* num_key, const char* den_key, const VSAPI* api);

// The planes of a frame in host memory of a format that to_video_format takes. Valid while `frame` lives.
FrameView frame_view(const VSFrame* frame, const VSAPI* api);
MutableFrameView writable_view(VSFrame* frame, const VSAPI* api);

}  // namespace reelgrad
