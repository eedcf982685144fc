// What a card should do, to hold a trial's figures against.
#pragma once
#include <optional>
#include <string>

namespace reelgrad {

// Of a data sheet: what a good program gets near to.
struct CardFigures {
  double memory_gbs = 0;   // of the card's memory
  double half_tflops = 0;  // dense products of half-precision matrices, summed in float; 0: not known
};

// By the name that the driver gives the card. nullopt for one that the table does not have, and for a part of one
// (MIG).
std::optional<CardFigures> expected_figures(const std::string& name);

// What copies from pinned memory should reach at least, one way, in GB/s: three quarters of what the link carries after
// its encoding. 0: not known.
double pcie_gbs(int generation, int width);

}  // namespace reelgrad
