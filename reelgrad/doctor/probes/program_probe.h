#pragma once
#include <chrono>
#include <string>

#include "reelgrad/doctor/facts.h"
#include "reelgrad/doctor/probes/root_files.h"

namespace reelgrad {

// The ffmpeg on the environment's PATH, run twice within the time limit in a process of its own.
FfmpegFacts probe_ffmpeg(const RootFiles& files, const Environment& environment, std::chrono::milliseconds time_limit);

// Those of the encoders that reelgrad is asked to write with, of what `ffmpeg -encoders` prints.
std::vector<std::string> encoders_in(const std::string& list);

}  // namespace reelgrad
