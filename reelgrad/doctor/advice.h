// Which PyTorch and which CUDA go with which driver and card. Tables with their origin, and pure functions of them.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reelgrad/doctor/facts.h"

namespace reelgrad {

// "8.9": compute capability.
struct Capability {
  int major = 0, minor = 0;
  auto operator<=>(const Capability&) const = default;
};
std::string to_string(Capability capability);
Capability capability_of(const DeviceFacts& device);

constexpr Capability kOldestCard{7, 5};  // what PyTorch for CUDA 13 and the preset `full` have code for

// A pair that reelgrad builds on.
struct TorchPair {
  std::string_view torch, cuda;
  int least_driver;
  Capability oldest, newest;
  std::string_view setup;  // the command that installs it
};

// An index of PyTorch's packages.
struct TorchIndex {
  std::string_view url;
  int least_driver;
  Capability oldest, newest;
};

// The least major version of the driver for a CUDA version ("12.8"); nullopt for one that the table does not have.
std::optional<int> least_driver(std::string_view cuda);

// The best for this driver (its major version; 0: not known, or to be installed) and all these cards; null: none.
const TorchPair* best_pair(int driver, const std::vector<Capability>& cards);
const TorchIndex* best_index(int driver, const std::vector<Capability>& cards);

// The pair of this PyTorch ("2.11.0"); null: none.
const TorchPair* pair_of(std::string_view torch);

// The forward-compatibility package for a CUDA version: "cuda-compat-13-0". It needs a data-centre card and a driver of
// a branch that NVIDIA keeps up for it.
std::string compat_package(std::string_view cuda);
bool may_use_compat(std::string_view card_name, int driver);

// The number that a text begins with: "580.65.06" -> 580; 0 when it begins with none.
int leading_number(std::string_view text);

// cuDriverGetVersion's number as people write it: 10010 -> "10.1".
std::string cuda_level(int version);

// Compares "2.36" with "2.4" number by number.
bool is_older(std::string_view version, std::string_view than);

}  // namespace reelgrad
