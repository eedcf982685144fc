#include "reelgrad/restore/tiling.h"

#include <algorithm>

namespace reelgrad {

std::vector<TileSpan> split_into_tiles(int length, int tile, int overlap) {
  std::vector<TileSpan> spans;
  for (int keep = 0; keep < length; keep += tile) {
    const int keep_size = std::min(tile, length - keep);
    const int begin = std::max(0, keep - overlap);
    const int end = std::min(length, keep + keep_size + overlap);
    spans.push_back({begin, end - begin, keep, keep_size});
  }
  return spans;
}

int round_up(int value, int multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace reelgrad
