#pragma once
#include "reelgrad/config/config.h"
#include "reelgrad/config/source.h"

namespace reelgrad {

// Reports what is wrong between keys that are each right by themselves.
void check_rules(const Config& config, Source& source);

}  // namespace reelgrad
