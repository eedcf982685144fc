#include "reelgrad/restore/tile_plan.h"

#include <algorithm>

namespace reelgrad {

int round_up(int value, int multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

std::vector<TileSpan> split_side(int length, const TileSizes& sizes) {
  int keep = sizes.keep > 0 ? std::min(sizes.keep, length) : length;
  if (sizes.fixed > 0 && length > sizes.fixed) keep = std::max(sizes.multiple, sizes.fixed - 2 * sizes.overlap);
  // As few tiles as that takes, of even lengths: the last one would read as much for less.
  const int wanted = (length + keep - 1) / keep;
  keep = round_up((length + wanted - 1) / wanted, sizes.multiple);
  const int count = (length + keep - 1) / keep;
  const int read = count == 1 && sizes.fixed == 0 ? length
                   : sizes.fixed > 0              ? sizes.fixed
                                                  : std::min(length, keep + 2 * sizes.overlap);
  const int last = length - (count - 1) * keep;
  const int half = std::min(sizes.fade, std::min(keep, last)) / 2;
  std::vector<TileSpan> spans;
  for (int i = 0; i < count; ++i) {
    const int begin = i * keep, end = std::min(length, begin + keep);
    const int fade = i == 0 ? 0 : 2 * half;
    spans.push_back({.begin = std::clamp(begin - sizes.overlap, 0, length - read),
                     .size = read,
                     .from = begin - fade / 2,
                     .to = i + 1 == count ? length : end + half,
                     .fade = fade});
  }
  return spans;
}

int fade_of(int overlap, int receptive_radius) {
  constexpr int kWidest = 16;
  if (overlap >= receptive_radius) return std::min(overlap - receptive_radius, kWidest / 2) * 2;
  return std::min(overlap / 4, kWidest / 2) * 2;
}

int tiles_a_batch(int tile_pixels, int tiles, int filling_pixels) {
  constexpr int kMost = 8;
  return std::clamp(filling_pixels / std::max(1, tile_pixels), 1, std::min(tiles, kMost));
}

}  // namespace reelgrad
