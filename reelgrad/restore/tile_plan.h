// Cutting a picture into tiles: pure arithmetic of one side; a picture's tiles are the product of its two sides'.
#pragma once
#include <vector>

namespace reelgrad {

// In input pixels, all multiples of the network's size multiple but `fade`.
struct TileSizes {
  int keep = 0;     // what one tile restores, at most; 0: all
  int overlap = 0;  // what a tile reads around that
  int fade = 0;     // an even number: what two neighbours share, over which one passes into the other
  int fixed = 0;    // what a tile reads in all, of a network that takes nothing else; 0: any
  int multiple = 1;
  bool operator==(const TileSizes&) const = default;
};

// Pixels along one side: the tile reads [begin, begin + size) and gives [from, to). Over the first `fade` of those, the
// weight rises from the tile before to this one.
struct TileSpan {
  int begin = 0, size = 0;
  int from = 0, to = 0;
  int fade = 0;
  bool operator==(const TileSpan&) const = default;
};

// All of one size, so that one graph serves them; at the picture's ends they reach further in. The pixels of `length`
// (a multiple; at least `fixed`) that lie `overlap` inside a tile, or at the picture's end, are given; less by half of
// `fade` where tiles pass into one another.
std::vector<TileSpan> split_side(int length, const TileSizes& sizes);

// The fade that a network of this receptive radius may have: where tiles are exact, only what both hold exactly.
int fade_of(int overlap, int receptive_radius);

// Weight of the later tile at pixel `i` of `fade`, in (0, 1).
constexpr double fade_weight(int i, int fade) {
  return (i + 0.5) / fade;
}

int round_up(int value, int multiple);

// Tiles of `sizes` that a call to the network takes together, so that small ones fill a card.
int tiles_a_batch(int tile_pixels, int tiles, int filling_pixels);

}  // namespace reelgrad
