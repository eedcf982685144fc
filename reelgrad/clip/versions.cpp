#include <fmt/format.h>

#include "reelgrad/clip/clip.h"
#include "reelgrad/clip/core.h"
#include "reelgrad/clip/video_source.h"
#include "reelgrad/clip/vs_library.h"

namespace reelgrad {

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
    versions.source_plugins = installed_source_plugins(library.api, core.core());
  } catch (const std::exception& error) {
    versions.error = error.what();
  }
  return versions;
}

}  // namespace reelgrad
