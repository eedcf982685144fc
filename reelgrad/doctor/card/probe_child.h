// Probes that may crash or hang run in a child: this program executed again as `reelgrad probe NAME [ARGUMENT]…`, a
// command that --help does not list. The child prints one JSON object on stdout and exits with 0.
#pragma once
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "reelgrad/doctor/facts.h"

namespace reelgrad {

struct ProbeAnswer {
  Outcome outcome = Outcome::not_run;  // ok: `json` holds what the child printed; failed: another exit status
  std::string json;
  std::string error;  // "killed by signal 11 (SIGSEGV)", "no answer within 5 s", the last line of its stderr
};

// `program` is executed in a process group of its own, with this process's environment and `environment`
// ("NAME=value"). Never throws: a program that cannot be started has failed.
ProbeAnswer ask_child(const std::filesystem::path& program, const std::vector<std::string>& probe,
                      std::chrono::milliseconds time_limit, const std::vector<std::string>& environment = {});

// In the child: the probes that doctor/ has itself: "driver", "vulkan", "trial UUID". Returns what is to be printed, or
// an empty text for a name that is not known here. "driver" prints {"driver": DriverFacts, "devices": [DeviceFacts]},
// "vulkan" VulkanFacts, "trial" what trial.h says. Leaves no core file when a library crashes.
std::string run_probe(const std::vector<std::string>& probe);

}  // namespace reelgrad
