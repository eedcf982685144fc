#pragma once
#include <chrono>
#include <filesystem>
#include <map>
#include <string>

#include "reelgrad/doctor/facts.h"

namespace reelgrad {

// Where the probes look; a test gives a folder of its own.
struct ProbeOptions {
  std::filesystem::path root = "/";                // of /proc, /sys, /dev, /etc and the libraries' folders
  std::map<std::string, std::string> environment;  // the process's own unless a test says otherwise
  // The reelgrad program, executed again for what may crash or hang (probe_child.h). Empty: such probes are left out.
  std::filesystem::path program;
  std::filesystem::path run_dir = ".";
  bool trial = false;                            // where there is a card: open PyTorch, and try each that is usable
  bool video = true;                             // VapourSynth, Vulkan and ffmpeg too, or only what is about cards
  std::chrono::milliseconds time_limit{10'000};  // of all children but the trials
};

// As this process has them: `environment` and, beside this binary or on PATH, `program`.
ProbeOptions probe_options();

// Never throws: what could not be found out is "not known".
Facts probe_machine(const ProbeOptions& options = probe_options());

}  // namespace reelgrad
