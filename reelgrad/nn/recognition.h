// Which architecture a file of weights is of, by its keys and shapes alone.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reelgrad/nn/architectures.h"

namespace reelgrad {

struct Recognised {
  NetworkSpec spec;
  std::shared_ptr<Network> network;  // blank
};

// The network into which the weights load strictly; nullopt: none that is known.
std::optional<Recognised> recognise(const NamedTensors& state);

// An architecture beside a file that is of none: with the options with which it is most like the file.
struct Candidate {
  NetworkSpec spec;
  std::size_t fitting = 0;  // tensors that are in both, with one shape
  std::size_t tensors = 0;  // that are in either
  // The first of the network's that is not in the file so, else the first of the file's that is not the network's.
  std::string key;
  std::optional<std::vector<std::int64_t>> expected, found;  // nullopt: there is no such key
};

// The three that are most like the file, the nearest first.
std::vector<Candidate> nearest_architectures(const NamedTensors& state);

// "not a model of an architecture that reelgrad has; its tensors: …; nearest: compact at scale 2 (34 of 36 tensors fit;
// body.4.weight: expected [12, 64, 3, 3], found none), …".
std::string describe_unrecognised(const NamedTensors& state, const std::vector<Candidate>& nearest);

}  // namespace reelgrad
