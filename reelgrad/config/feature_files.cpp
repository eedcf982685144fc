#include "reelgrad/config/feature_files.h"

#include <fmt/format.h>

#include <array>

namespace reelgrad {
namespace {

constexpr std::array<int, 5> kConvsOfBlock{2, 2, 4, 4, 4};

}  // namespace

std::optional<int> vgg19_layer(std::string_view name) {
  int layer = 0;
  for (std::size_t block = 0; block < kConvsOfBlock.size(); ++block) {
    for (int conv = 1; conv <= kConvsOfBlock[block]; ++conv, layer += 2) {
      if (name == fmt::format("conv{}_{}", block + 1, conv)) return layer;
      if (name == fmt::format("relu{}_{}", block + 1, conv)) return layer + 1;
    }
    if (name == fmt::format("pool{}", block + 1)) return layer;
    ++layer;
  }
  return std::nullopt;
}

}  // namespace reelgrad
