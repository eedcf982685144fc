// WSL and containers: whose card it is, and how it comes in.
#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "reelgrad/doctor/probes/mounts.h"
#include "reelgrad/doctor/probes/system_probe.h"

namespace reelgrad {
namespace {

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// WSL 1 imitates a kernel "4.4.0-19041-Microsoft"; that of WSL 2 is "…-microsoft-standard-WSL2" or the user's own.
int wsl_version(const RootFiles& files, const Environment& environment, const std::string& kernel) {
  if (contains(kernel, "-Microsoft") && !contains(kernel, "WSL2")) return 1;
  if (contains(kernel, "microsoft") || contains(kernel, "WSL2")) return 2;
  const bool traces = environment.contains("WSL_DISTRO_NAME") || files.exists("/proc/sys/fs/binfmt_misc/WSLInterop");
  return traces ? 2 : 0;
}

// By the control group's path, which a private name space hides.
std::string container_by_group(const std::string& groups) {
  static constexpr std::array<std::pair<const char*, const char*>, 5> kMarks{{{"kubepods", "kubernetes"},
                                                                              {"libpod", "podman"},
                                                                              {"docker", "docker"},
                                                                              {"/lxc", "lxc"},
                                                                              {"containerd", "containerd"}}};
  for (const auto& [mark, name] : kMarks) {
    if (contains(groups, mark)) return name;
  }
  return "";
}

std::string container_name(const RootFiles& files, const Environment& environment) {
  if (environment.contains("KUBERNETES_SERVICE_HOST")) return "kubernetes";
  if (environment.contains("APPTAINER_CONTAINER") || environment.contains("SINGULARITY_CONTAINER") ||
      files.exists("/.singularity.d"))
    return "apptainer";
  if (files.exists("/run/.containerenv")) return "podman";
  if (files.exists("/.dockerenv")) return "docker";
  // What systemd asks of container managers, and where it notes it down. WSL with systemd says "wsl".
  std::string named = variable_of(environment, "container");
  if (named.empty()) named = files.first_line("/run/systemd/container");
  if (named.empty()) named = container_by_group(files.text("/proc/1/cgroup"));
  return named == "wsl" ? "" : named;
}

// The runtime mounts the driver's programs, libraries and devices one by one.
bool mounts_of_runtime(const RootFiles& files) {
  const auto all = mounts(files);
  return std::any_of(all.begin(), all.end(), [](const Mount& mount) {
    return contains(mount.point.native(), "nvidia") || contains(mount.point.native(), "libcuda.so");
  });
}

bool has_nvidia_runtime(const RootFiles& files, const Environment& environment) {
  if (mounts_of_runtime(files)) return true;
  // Images set the variable themselves: alone it says nothing.
  const std::string devices = variable_of(environment, "NVIDIA_VISIBLE_DEVICES");
  const bool asked = !devices.empty() && devices != "void" && devices != "none";
  return asked && (files.exists("/dev/nvidiactl") || files.exists("/usr/bin/nvidia-smi"));
}

}  // namespace

void probe_container(const RootFiles& files, const Environment& environment, SystemFacts& facts) {
  facts.wsl = wsl_version(files, environment, facts.kernel);
  facts.has_dxg = files.exists("/dev/dxg");
  facts.container = container_name(files, environment);
  facts.container_has_nvidia_runtime = !facts.container.empty() && has_nvidia_runtime(files, environment);
}

}  // namespace reelgrad
