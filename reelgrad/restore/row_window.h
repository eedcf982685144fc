#pragma once
#include <torch/types.h>

#include "reelgrad/restore/area_plan.h"

namespace reelgrad {

// The output rows that are being put together from tiles: a window that goes down the picture.
class RowWindow {
 public:
  // Of `pictures` pictures.
  RowWindow(const AreaPlan& plan, int pictures, int channels, torch::ScalarType type, torch::Device device);

  void begin_picture() { first_row_ = 0; }
  // `tile` [pictures, C, h, w]: what the network made of the tile of these two spans. Tiles come row by row.
  void add(const torch::Tensor& tile, const TileSpan& row, const TileSpan& column);
  // Rows before `row` are not needed any more.
  void advance_to(int row);

  const torch::Tensor& rows() const { return memory_; }  // [pictures, C, window_rows, width * scale]
  int first_row() const { return first_row_; }           // of the picture, that the window begins with

 private:
  torch::Tensor ramp(int fade) const;

  int scale_, height_, width_;  // of the output, padding included
  torch::Tensor memory_;
  int first_row_ = 0;
};

}  // namespace reelgrad
