#pragma once
#include "reelgrad/base/text.h"
#include "reelgrad/clip/clip.h"
#include "reelgrad/clip/video_writer.h"
#include "reelgrad/clip/window_reader.h"
#include "reelgrad/engine/engine.h"

namespace reelgrad::cli {

// Restores the frames of a range, session.streams() windows side by side, and writes them in their order, in a thread
// of its own; of frames that wait for an earlier one there are a few at most. `windows.segments` is as the session is.
// Throws interrupted after the tiles in flight when a stop is asked for, and what a frame or the encoder failed with.
void restore_frames(RestorerSession& session, const Clip& clip, FrameRange range, const WindowOptions& windows,
                    VideoWriter& writer, PictureSize size);

}  // namespace reelgrad::cli
