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

// A network of the user's own may have any.
constexpr std::array<int, 16> kOwnScales{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
constexpr std::array<ArchitectureOption, 3> kTorchScriptOptions{{
    {"file", "file", "", "a TorchScript file", "the network, saved by torch.jit.script(network).save(file)"},
    {"size_multiple", "int", "0", "0..1024", "input height and width must be multiples of it; 0: measured"},
    {"receptive_radius_px", "int", "-1", "-1..4096",
     "input pixels around a pixel that its output depends on; -1: measured"},
}};
constexpr std::array<ArchitectureOption, 1> kModuleOptions{{
    {"module", "file", "", "a shared library", "the network, built against reelgrad/nn/module.h"},
}};

constexpr std::array<ArchitectureEntry, 3> kArchitectures{{
    {"compact", "SRVGGNetCompact: plain 3x3 convolutions and one pixel shuffle, made for speed", kCompactScales,
     kCompactOptions},
    {"torchscript", "A network of your own in PyTorch, in a TorchScript file", kOwnScales, kTorchScriptOptions},
    {"module", "A network of your own in C++, in a shared library", kOwnScales, kModuleOptions, /*takes_args=*/true},
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
