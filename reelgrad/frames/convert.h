// Whole pictures to tensors and back, for validation, apply and the plugin.
#pragma once
#include <torch/types.h>

#include "reelgrad/clip/frame.h"
#include "reelgrad/kernels/color.h"
#include "reelgrad/kernels/gather.h"

namespace reelgrad {

PictureRef picture_ref(const FrameView& view);

// float32 [C, H, W] on `device`, not clamped. The picture crosses to the card in its own format. On the device's
// current stream; the frame may be freed on return.
torch::Tensor to_tensor(const FrameView& frame, const ColorSpec& color, NetworkColor to, torch::Device device);

// `image` float32 [C, H, W] (any device) into host planes of out.format; waits for the card.
void to_picture(const torch::Tensor& image, NetworkColor from, const ColorSpec& color, const MutableFrameView& out);

}  // namespace reelgrad
