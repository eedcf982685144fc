#include <fmt/format.h>

#include "reelgrad/clip/clip.h"
#include "reelgrad/clip/core.h"
#include "reelgrad/clip/video_source.h"
#include "reelgrad/clip/vs_library.h"

namespace reelgrad {
namespace {

std::vector<std::string> installed_plugins(const VSAPI* api, VSCore* core) {
  std::vector<std::string> found;
  for (VSPlugin* plugin = api->getNextPlugin(nullptr, core); plugin; plugin = api->getNextPlugin(plugin, core)) {
    found.emplace_back(api->getPluginNamespace(plugin));
  }
  return found;
}

}  // namespace

VapourSynthVersions vapoursynth_versions() {
  VapourSynthVersions versions;
  try {
    const VapourSynth& library = vapoursynth();
    versions.vsscript = library.library.string();
    versions.python = library.python.string();
    const Core core("VapourSynth", {});
    VSCoreInfo2 info;
    library.api->getCoreInfo2(core.core(), &info);
    versions.core = fmt::format("R{}", info.coreVersion);
    versions.api = fmt::format("{}.{}", info.apiVersion >> 16, info.apiVersion & 0xFFFF);
    versions.plugins = installed_plugins(library.api, core.core());
    versions.source_plugins = installed_source_plugins(library.api, core.core());
  } catch (const std::exception& error) {
    versions.error = error.what();
  }
  return versions;
}

}  // namespace reelgrad
