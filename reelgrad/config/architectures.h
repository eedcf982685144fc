// The architectures' names and options without their networks: what the configuration can check without LibTorch.
// nn/architectures.h has the factories for the same names.
#pragma once
#include <span>
#include <string_view>

namespace reelgrad {

struct ArchitectureOption {
  std::string_view name;
  std::string_view kind;           // "int" | "ints" | "bool" | "choice" | "file": a path, which must be given
  std::string_view default_value;  // of ints: "6,6,6"
  std::string_view allowed;        // "1..1024", of ints each; or "a|b|c"; of a file: what it is
  std::string_view help;
};

struct ArchitectureEntry {
  std::string_view name;
  std::string_view help;
  std::span<const int> scales;
  std::span<const ArchitectureOption> options;
  bool takes_args = false;  // model.args
  int window = 1;           // frames that it looks at, as data.window must say; of a user's network: any

  int usual_scale() const { return scales[scales.size() > 1 ? 1 : 0]; }
};

std::span<const ArchitectureEntry> architectures();
const ArchitectureEntry* find_architecture(std::string_view name);  // nullptr when unknown

}  // namespace reelgrad
