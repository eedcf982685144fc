// How a picture of one size is gone through: its tiles, in rows, and the rows of output that are held meanwhile.
#pragma once
#include <vector>

#include "reelgrad/nn/network.h"
#include "reelgrad/restore/tile_plan.h"

namespace reelgrad {

struct AreaPlan {
  int width = 0, height = 0;                // of the input
  int padded_width = 0, padded_height = 0;  // to the network's multiple, or its fixed size
  int scale = 1;
  TileSizes sizes;
  std::vector<TileSpan> rows, columns;
  int batch = 1;        // tiles that go through the network together
  int window_rows = 0;  // of output: all, or as few as one row of tiles needs beside what is still blended and filtered

  bool whole() const { return rows.size() == 1 && columns.size() == 1; }
  int tile_height() const { return rows.front().size; }
  int tile_width() const { return columns.front().size; }
  bool operator==(const AreaPlan&) const = default;
};

// Rows of output that are complete once the tiles of `row` are there, a multiple of 4 but for the last.
int complete_rows(const AreaPlan& plan, std::size_t row);
// Of those that were complete before, the first that writing later ones still reads.
int first_row_needed(int complete);

// `in_bands`: as few output rows as possible are held.
AreaPlan plan_area(const NetworkInfo& info, int width, int height, TileSizes sizes, int filling_pixels, bool in_bands);

}  // namespace reelgrad
