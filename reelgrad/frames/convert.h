// Whole pictures to tensors and back, for validation, apply and the plugin.
#pragma once
#include <torch/types.h>

#include <optional>

#include "reelgrad/clip/frame.h"
#include "reelgrad/kernels/color.h"
#include "reelgrad/kernels/gather.h"

namespace reelgrad {

PictureRef picture_ref(const FrameView& view);

// float32, float16 and bfloat16, which the kernels read and write; nullopt for others.
std::optional<ElementType> element_type(torch::ScalarType dtype);

// Valid while the tensor lives; [C, H, W] of any strides.
MutableImageRef image_ref(const torch::Tensor& image);

struct TensorForm {
  torch::ScalarType dtype = torch::kFloat32;  // or kFloat16, kBFloat16
  // Or ChannelsLast: unsqueeze(0) is then a contiguous channels_last batch of one.
  torch::MemoryFormat layout = torch::MemoryFormat::Contiguous;
  ChromaFilter filter = ChromaFilter::bicubic;
};

// [C, H, W] on `device` in the given form, not clamped. The picture crosses to the card in its own format, unless it is
// on that card already. On the device's current stream; the frame may be freed on return.
torch::Tensor to_tensor(const FrameView& frame, const ColorSpec& color, NetworkColor to, torch::Device device,
                        const TensorForm& form = {});

// One crop, where `device` says; on the CPU, threads share its rows. On a card on its current stream.
void read_crop(const GatherSpec& spec, const CropJob& job, torch::Device device);

// Rows of a picture that lies where `image` does: see scatter_rows. `image` [C, rows, width] of float32, float16 or
// bfloat16 has the picture's rows from `first_row` on; `out`'s planes begin with row 0, of which only the rows in
// question need exist. On a card on its current stream.
void write_rows(const torch::Tensor& image, int first_row, const ScatterSpec& spec, const MutablePictureRef& out,
                int row_begin, int row_end);

MutablePictureRef picture_ref(const MutableFrameView& view);

struct PictureForm {
  Rounding rounding = Rounding::nearest;
  ChromaFilter filter = ChromaFilter::bicubic;
};

// `image` [C, H, W] of any device into host planes of out.format; waits for the card. float32, float16 and bfloat16 of
// any strides are read as they lie, other types are converted first.
void to_picture(const torch::Tensor& image, NetworkColor from, const ColorSpec& color, const MutableFrameView& out,
                const PictureForm& form = {});

}  // namespace reelgrad
