// What a network of somebody else's does to pictures, found by running it. All of these run it in the mode it is in,
// with noise from a generator of their own.
#pragma once
#include <optional>
#include <string>

#include "reelgrad/nn/network.h"

namespace reelgrad {

// What a network is asked to be.
struct PictureShape {
  int scale = 1;
  int channels = 3;
  int window = 1;
  bool all_frames = false;  // as NetworkInfo's
};

// The smallest power of two, up to 64, such that heights and widths that are its multiples give pictures of `scale`
// times the size. Throws usage, naming `what`, when there is none, or when the network takes or gives other channels or
// windows than `shape` says: with what it takes instead, where that can be found.
int measure_size_multiple(Network& network, const PictureShape& shape, const std::string& what);

// Of pictures that networks are traced with.
inline constexpr int kUsualSides[] = {64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 1024};

// The side of the square that a network takes and nothing else, as a script that was traced may: one of the usual
// sizes; nullopt: none of them.
std::optional<int> measure_fixed_size(Network& network, const PictureShape& shape);

// Throws usage when the network does not turn a picture of its size multiple into one `scale` times as large.
void check_output(Network& network, const PictureShape& shape, int size_multiple, const std::string& what);
// The same for one size.
void check_output_of(Network& network, const PictureShape& shape, int side, const std::string& what);

// Throws usage when the output has another type than the network's parameters and input, which it then takes from its
// code.
void check_number_type(Network& network, const PictureShape& shape, int size_multiple, const std::string& what);

struct MeasuredRadius {
  std::optional<int> px;  // nullopt: farther than 64
  bool faint = false;     // some influence was near the smallest number of the type: in float64 it may reach farther
};

// How far, in input pixels, what an output pixel depends on reaches: from the gradient of output pixels in the middle
// of noise.
MeasuredRadius measure_receptive_radius(Network& network, const PictureShape& shape, int size_multiple);

}  // namespace reelgrad
