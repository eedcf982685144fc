// libreelgrad_vs.so: core.reelgrad. It links no torch; the first Model opens the engine.
#include <VapourSynth4.h>

#include <optional>
#include <string>

#include "reelgrad/doctor/torch/torch_install.h"
#include "reelgrad/plugin/model_filter.h"
#include "reelgrad/plugin/vs_guard.h"

namespace reelgrad::vs {
namespace {

// version: the plugin's; torch, torch_path: what Model would open, empty when there is none; problem: why, or empty.
void VS_CC version(const VSMap*, VSMap* out, void*, VSCore*, const VSAPI* api) {
  const auto set = [&](const char* key, const std::string& value) {
    api->mapSetData(out, key, value.c_str(), static_cast<int>(value.size()), dtUtf8, maReplace);
  };
  guarded(
      "Version", [&](const char* message) { api->mapSetError(out, message); },
      [&] {
        std::string why;
        const std::optional<TorchInstall> torch = find_torch(&why);
        set("version", REELGRAD_VERSION);
        set("torch", torch ? torch->version : "");
        set("torch_path", torch ? torch->dir.string() : "");
        set("problem", torch ? "" : why);
      });
}

}  // namespace
}  // namespace reelgrad::vs

VS_EXTERNAL_API(void) VapourSynthPluginInit2(VSPlugin* plugin, const VSPLUGINAPI* api) {
  api->configPlugin("io.github.reelgrad.vs", "reelgrad", "Video restoration networks",
                    VS_MAKE_VERSION(REELGRAD_VERSION_MAJOR, REELGRAD_VERSION_MINOR), VAPOURSYNTH_API_VERSION, 0,
                    plugin);
  api->registerFunction("Version", "", "version:data;torch:data;torch_path:data;problem:data;", reelgrad::vs::version,
                        nullptr, plugin);
  reelgrad::vs::register_model(plugin, api);
}
