#include "reelgrad/restore/row_window.h"

#include <torch/torch.h>

#include <algorithm>

namespace reelgrad {

RowWindow::RowWindow(const AreaPlan& plan, int pictures, int channels, torch::ScalarType type, torch::Device device)
    : scale_(plan.scale),
      height_(plan.padded_height * plan.scale),
      width_(plan.padded_width * plan.scale),
      memory_(torch::empty({pictures, channels, plan.window_rows, width_}, torch::dtype(type).device(device))) {}

// Weights of the later tile over `fade` input pixels, made where they are used. See fade_weight.
torch::Tensor RowWindow::ramp(int fade) const {
  const std::int64_t length = static_cast<std::int64_t>(fade) * scale_;
  const auto options = torch::dtype(torch::kFloat32).device(memory_.device());
  return at::arange(length, options).add_(0.5).div_(static_cast<double>(length)).to(memory_.scalar_type());
}

void RowWindow::add(const torch::Tensor& tile, const TileSpan& row, const TileSpan& column) {
  const std::int64_t top = row.from * scale_ - first_row_, left = column.from * scale_;
  const std::int64_t rows = (row.to - row.from) * scale_, columns = (column.to - column.from) * scale_;
  const torch::Tensor from =
      tile.narrow(2, (row.from - row.begin) * scale_, rows).narrow(3, (column.from - column.begin) * scale_, columns);
  const torch::Tensor to = memory_.narrow(2, top, rows).narrow(3, left, columns);
  const std::int64_t above = row.fade * scale_, beside = column.fade * scale_;
  // Each weight times what is there already: of up to four tiles, so that nothing jumps where they meet.
  if (above > 0) {
    torch::Tensor weight = ramp(row.fade).unsqueeze(1).expand({above, columns});
    if (beside > 0) {
      weight = weight.clone();
      weight.narrow(1, 0, beside).mul_(ramp(column.fade));
    }
    to.narrow(2, 0, above).lerp_(from.narrow(2, 0, above), weight);
  }
  const std::int64_t below = rows - above;
  if (beside > 0) {
    to.narrow(2, above, below)
        .narrow(3, 0, beside)
        .lerp_(from.narrow(2, above, below).narrow(3, 0, beside), ramp(column.fade));
  }
  to.narrow(2, above, below)
      .narrow(3, beside, columns - beside)
      .copy_(from.narrow(2, above, below).narrow(3, beside, columns - beside));
}

void RowWindow::advance_to(int row) {
  const std::int64_t gone = row - first_row_;
  if (gone <= 0 || memory_.size(2) == height_) return;
  const std::int64_t kept = std::min<std::int64_t>(memory_.size(2), height_ - first_row_) - gone;
  memory_.narrow(2, 0, kept).copy_(memory_.narrow(2, gone, kept).clone());
  first_row_ = row;
}

}  // namespace reelgrad
