// How far tiles must overlap.
#pragma once
#include <optional>
#include <string>

#include "reelgrad/nn/network.h"

namespace reelgrad {

// The smallest overlap, a multiple of the network's, with which what tiles show (see split_side and fade_of) lies
// within half an 8-bit code of the whole picture, before rounding: on noise, fine and coarse, with a margin for other
// pictures. At most the receptive radius; nullopt where not even the largest that is tried does, as with networks that
// average over the whole picture. The network is in eval mode, float32.
std::optional<int> measure_overlap(Network& network);

// Names a network by what it computes: hash of the values of its state, as they were loaded.
std::string weights_hash(const Network& network);

// What was measured for this network earlier, on this machine.
std::optional<int> known_overlap(const std::string& weights_hash);
void keep_overlap(const std::string& weights_hash, int overlap_px);

}  // namespace reelgrad
