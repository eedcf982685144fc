#include "reelgrad/restore/area_plan.h"

#include <algorithm>

#include "reelgrad/kernels/gather.h"

namespace reelgrad {
namespace {

constexpr int kRowAlignment = 4;  // of every chroma subsampling

int padded(int length, const NetworkInfo& info) {
  return info.fixed_px > 0 ? std::max(length, info.fixed_px) : round_up(length, info.size_multiple);
}

int rows_in_a_band(const AreaPlan& plan) {
  int most = 0, first = 0;
  for (std::size_t row = 0; row < plan.rows.size(); ++row) {
    most = std::max(most, plan.rows[row].to * plan.scale - first);
    first = first_row_needed(complete_rows(plan, row));
  }
  return most;
}

}  // namespace

int complete_rows(const AreaPlan& plan, std::size_t row) {
  if (row + 1 == plan.rows.size()) return plan.height * plan.scale;
  const int settled = std::min(plan.rows[row + 1].from, plan.height) * plan.scale;
  return std::max(0, settled - kScatterReach) / kRowAlignment * kRowAlignment;
}

int first_row_needed(int complete) {
  return std::max(0, complete - kScatterReach);
}

AreaPlan plan_area(const NetworkInfo& info, int width, int height, TileSizes sizes, int filling_pixels, bool in_bands) {
  AreaPlan plan{.width = width,
                .height = height,
                .padded_width = padded(width, info),
                .padded_height = padded(height, info),
                .scale = info.scale};
  sizes.fixed = info.fixed_px;
  sizes.multiple = info.fixed_px > 0 ? 1 : info.size_multiple;
  if (sizes.fixed > 0) sizes.keep = sizes.fixed - 2 * sizes.overlap;
  plan.sizes = sizes;
  plan.rows = split_side(plan.padded_height, sizes);
  plan.columns = split_side(plan.padded_width, sizes);
  const int tiles = static_cast<int>(plan.columns.size());
  plan.batch = tiles_a_batch(plan.tile_height() * plan.tile_width(), tiles, filling_pixels);
  plan.window_rows = in_bands ? rows_in_a_band(plan) : plan.padded_height * info.scale;
  return plan;
}

}  // namespace reelgrad
