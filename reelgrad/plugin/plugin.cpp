// libreelgrad_vs.so: core.reelgrad. It links no torch; the first function that needs the engine opens it.
#include <VapourSynth4.h>

#include "reelgrad/plugin/helpers.h"
#include "reelgrad/plugin/metrics.h"
#include "reelgrad/plugin/model.h"

VS_EXTERNAL_API(void) VapourSynthPluginInit2(VSPlugin* plugin, const VSPLUGINAPI* api) {
  api->configPlugin("io.github.reelgrad.vs", "reelgrad", "Video restoration networks",
                    VS_MAKE_VERSION(REELGRAD_VERSION_MAJOR, REELGRAD_VERSION_MINOR), VAPOURSYNTH_API_VERSION, 0,
                    plugin);
  reelgrad::vs::register_helpers(plugin, api);
  reelgrad::vs::register_model(plugin, api);
  reelgrad::vs::register_metrics(plugin, api);
}
