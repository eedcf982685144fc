// Scripts and configurations for the tests of data/.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "reelgrad/clip/clip.h"
#include "reelgrad/config/config.h"
#include "reelgrad/data/loader.h"

namespace reelgrad::testing_data {

// Every sample of the input is another number: (frame * 2048 + y * 64 + x) / 2^20, 64x32 GrayS; the target repeats each
// pixel twice in both directions. Variables: frames; sleep, seconds a frame; log, a file that gets a character for each
// input frame made; fail, a frame that raises until the file `mended` exists; field, a frame that is flagged
// interlaced; hold, frames that show the same picture; cut, a frame that begins a scene.
inline constexpr int kNumberedWidth = 64, kNumberedHeight = 32;
inline const char* const kNumberedScript = R"(
import os
import time
import numpy as np
import vapoursynth as vs
core = vs.core
variables = globals()
frames = int(variables.get("frames", 40))
sleep = float(variables.get("sleep", 0))
log = variables.get("log", "")
fail = int(variables.get("fail", -1))
mended = variables.get("mended", "")
field = int(variables.get("field", -1))
hold = int(variables.get("hold", 1))
cut = int(variables.get("cut", -1))
def number(n, f):
    time.sleep(sleep)
    if n == fail and not os.path.exists(mended):
        raise ValueError("this frame is bad")
    if log:
        with open(log, "a") as file:
            file.write("x")
    f = f.copy()
    y, x = np.mgrid[0:32, 0:64]
    np.asarray(f[0])[:] = ((n // hold * hold * 2048 + y * 64 + x) / 2**20).astype(np.float32)
    if n == cut:
        f.props._SceneChangePrev = 1
    if n == field:
        f.props._FieldBased = 2
    return f
blank = core.std.BlankClip(width=64, height=32, format=vs.GRAYS, length=frames)
blank = core.std.SetFrameProps(blank, _Range=1)
clip = core.std.ModifyFrame(blank, blank, number)
clip.set_output(1)
core.resize.Point(clip, 128, 64).set_output(0)
)";

inline Config numbered_config(const std::filesystem::path& script) {
  Config config;
  config.data.script = {ScriptConfig{.path = script}};
  config.data.batch = 8;
  config.data.crop_px = 12;
  config.data.color = "gray";
  config.data.segment_frames = 4;
  config.data.pool_frames = 12;
  config.data.reuse = 1;
  config.model.scale = 2;
  return config;
}

using Args = std::map<std::string, std::string>;

inline std::vector<TrainingClip> open_clips(const Config& config, const Args& args = {}, int threads = 0) {
  return open_training_clips(config, [&](const ScriptConfig& script) {
    return Script::open(script.path, {.args = args, .threads = threads});
  });
}

}  // namespace reelgrad::testing_data
