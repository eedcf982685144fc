// Networks of the user's own in shared libraries: arch = "module". What such a library holds: module.h.
#pragma once
#include <memory>

#include "reelgrad/nn/architectures.h"
#include "reelgrad/nn/network.h"

namespace reelgrad {

// Row of the architecture table. The network has the parameters' names and the info() of the module's own; what it
// throws comes as an Error that names the library. Throws usage for a file that is no module, one that was built for
// another torch or another reelgrad, and a network that is not what the spec asks for.
std::shared_ptr<Network> make_user_module(const NetworkSpec& spec);

}  // namespace reelgrad
