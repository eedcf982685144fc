#include "reelgrad/restore/tile_source.h"

#include <torch/torch.h>

#include <algorithm>

#include "reelgrad/frames/convert.h"

namespace reelgrad {
namespace {

void pad_side(const torch::Tensor& tile, std::int64_t dim, std::int64_t filled) {
  while (filled < tile.size(dim)) {
    const std::int64_t added = std::min(tile.size(dim) - filled, std::max<std::int64_t>(1, filled - 1));
    // The last line is not repeated, unless it is the only one.
    const std::int64_t first = std::max<std::int64_t>(0, filled - 1 - added);
    tile.narrow(dim, filled, added).copy_(tile.narrow(dim, first, added).flip(dim));
    filled += added;
  }
}

}  // namespace

void pad_by_reflection(const torch::Tensor& tile, std::int64_t rows, std::int64_t columns) {
  pad_side(tile.narrow(-1, 0, columns), tile.dim() - 2, rows);
  pad_side(tile, tile.dim() - 1, columns);
}

void PictureSource::read(const Rect& part, const torch::Tensor& into) const {
  const int planes = channels(spec_.to);
  for (std::size_t t = 0; t < frames_.size(); ++t) {
    const torch::Tensor frame = into[static_cast<std::int64_t>(t)];
    read_crop(spec_,
              {.source = frames_[t],
               .x = part.x,
               .y = part.y,
               .width = part.width,
               .height = part.height,
               .out = image_ref(frame)},
              device_);
    if (frame.size(0) == planes) continue;
    const torch::Tensor noise = frame.narrow(0, planes, 1);
    if (map_.defined()) {
      noise.copy_(map_.narrow(1, part.y, part.height).narrow(2, part.x, part.width));
    } else {
      noise.fill_(level_);
    }
  }
}

void TensorSource::read(const Rect& part, const torch::Tensor& into) const {
  into.copy_(frames_.narrow(2, part.y, part.height).narrow(3, part.x, part.width));
}

}  // namespace reelgrad
