#pragma once
#include <VapourSynth4.h>

namespace reelgrad::vs {

// core.reelgrad.Metrics(a, b, device): clip a, whose frames say how alike those of b are: psnr_rgb, psnr_y, ssim_rgb
// and ssim_y, as `reelgrad validate` reckons them.
void register_metrics(VSPlugin* plugin, const VSPLUGINAPI* api);

}  // namespace reelgrad::vs
