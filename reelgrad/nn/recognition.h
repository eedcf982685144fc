// Which architecture a file of weights is of, by its keys and shapes alone.
#pragma once
#include <optional>
#include <string>

#include "reelgrad/nn/architectures.h"

namespace reelgrad {

// The spec with which the weights load strictly; nullopt: of none that is known.
std::optional<NetworkSpec> recognise(const NamedTensors& state);

// For the message when it is of none: the three architectures that are most like it, each with how much of theirs is
// in the file and the first key that differs.
std::string nearest_architectures(const NamedTensors& state);

}  // namespace reelgrad
