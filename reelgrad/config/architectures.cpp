#include "reelgrad/config/architectures.h"

#include <array>

namespace reelgrad {
namespace {

constexpr std::array<int, 4> kCompactScales{1, 2, 3, 4};
constexpr std::array<ArchitectureOption, 3> kCompactOptions{{
    {"features", "int", "64", "1..1024", "channels of the hidden layers"},
    {"convs", "int", "16", "1..1024", "convolutions between the first and the last"},
    {"activation", "choice", "prelu", "prelu|relu|leakyrelu", "after every convolution but the last"},
}};

constexpr std::array<ArchitectureEntry, 1> kArchitectures{{
    {"compact", "SRVGGNetCompact: plain 3x3 convolutions and one pixel shuffle, made for speed", kCompactScales,
     kCompactOptions},
}};

}  // namespace

std::span<const ArchitectureEntry> architectures() {
  return kArchitectures;
}

const ArchitectureEntry* find_architecture(std::string_view name) {
  for (const ArchitectureEntry& entry : kArchitectures) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

}  // namespace reelgrad
