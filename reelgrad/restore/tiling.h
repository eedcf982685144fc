// Cutting a side of a picture into tiles; a picture's tiles are the product of its two sides'.
#pragma once
#include <vector>

namespace reelgrad {

// Pixels along one axis: the tile reads [begin, begin + size) and keeps [keep_begin, keep_begin + keep_size).
struct TileSpan {
  int begin = 0, size = 0;
  int keep_begin = 0, keep_size = 0;
  bool operator==(const TileSpan&) const = default;
};

// The kept parts are `tile` long (the last one what is left) and cover [0, length) once; each reads `overlap` more on
// both sides, less at the picture's ends. `length`, `tile` and `overlap` are multiples of the network's size multiple,
// so that every tile is one and none shifts the network's grid.
std::vector<TileSpan> split_into_tiles(int length, int tile, int overlap);

int round_up(int value, int multiple);

}  // namespace reelgrad
